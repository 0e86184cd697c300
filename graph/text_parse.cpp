#include <cctype>
#include <charconv>

#include "graph/text.h"

namespace onw {
namespace {

// One line of the text form, read from the left.
class Line {
 public:
  explicit Line(std::string_view text) : rest_(text) {}

  bool take(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  // Up to the next space or one of ",;(){}=\"".
  std::string_view word() {
    skip_space();
    size_t n = 0;
    while (n < rest_.size() && rest_[n] != ' ' &&
           std::string_view(",;(){}=\"").find(rest_[n]) == std::string_view::npos)
      ++n;
    return cut(n);
  }

  std::string_view until(char end) {
    const size_t n = std::min(rest_.find(end), rest_.size());
    const std::string_view text = cut(n);
    if (!rest_.empty()) rest_.remove_prefix(1);
    return text;
  }

  std::string_view rest() {
    skip_space();
    return rest_;
  }
  bool done() { return rest().empty(); }

 private:
  void skip_space() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  std::string_view cut(size_t n) {
    const std::string_view head = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return head;
  }

  std::string_view rest_;
};

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A comma-separated list; "S" is kRows where integers are read.
template <class T>
std::optional<std::vector<T>> numbers(std::string_view text) {
  std::vector<T> list;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    if (item == "S") {
      list.push_back(static_cast<T>(kRows));
    } else if (const auto n = number<T>(item)) {
      list.push_back(*n);
    } else {
      return std::nullopt;
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

std::optional<Attribute> attribute(Line& line) {
  if (line.take("\"")) return Attribute(std::string(line.until('"')));
  if (line.take("[")) {
    const auto list = numbers<int64_t>(line.until(']'));
    if (!list) return std::nullopt;
    return Attribute(*list);
  }
  const std::string_view text = line.word();
  if (const auto n = number<int64_t>(text)) return Attribute(*n);
  if (const auto x = number<double>(text)) return Attribute(*x);
  return std::nullopt;
}

std::optional<Value> value(Line& line) {
  if (!line.take("%")) return std::nullopt;
  const auto id = number<int32_t>(line.word());
  if (!id) return std::nullopt;
  return Value{*id};
}

// "(%0, %1; eps=1e-05)"
bool arguments(Line& line, Node& n) {
  if (!line.take("(")) return true;
  while (!line.take(";")) {
    if (line.take(")")) return true;
    const auto v = value(line);
    if (!v) return false;
    n.inputs.push_back(*v);
    line.take(",");
  }
  while (!line.take(")")) {
    const std::string_view key = line.word();
    if (key.empty() || !line.take("=")) return false;
    auto a = attribute(line);
    if (!a) return false;
    n.attributes.set(key, std::move(*a));
    line.take(",");
  }
  return true;
}

std::optional<Node> node(Line& line, size_t id) {
  const auto v = value(line);
  if (!v || v->id != static_cast<int32_t>(id) || !line.take("=")) return std::nullopt;
  const auto found = op(line.word());
  if (!found) return std::nullopt;
  Node n;
  n.op = *found;
  if (!arguments(line, n)) return std::nullopt;
  if (line.take("{")) {
    auto list = numbers<float>(line.until('}'));
    if (!list) return std::nullopt;
    n.constant = std::move(*list);
  }
  if (!line.take("\"")) return std::nullopt;
  n.label = line.until('"');
  if (!line.take(":")) return std::nullopt;
  const auto type = parse_type(line.rest());
  if (!type) return std::nullopt;
  n.type = *type;
  return n;
}

bool outputs(Line& line, Function& f) {
  while (!line.done()) {
    const std::string_view name = line.word();
    if (!line.take("=")) return false;
    const auto v = value(line);
    if (!v) return false;
    f.outputs.push_back({std::string(name), *v});
    line.take(",");
  }
  return true;
}

// The fields "key=value" at the end of a declaration.
class Fields {
 public:
  explicit Fields(Line& line) {
    while (!line.done()) {
      const std::string_view key = line.word();
      if (key.empty() || !line.take("=")) {
        ok_ = false;
        return;
      }
      std::string_view text = line.rest();
      text = text.substr(0, std::min(text.find(' '), text.size()));
      line.take(text);
      list_.emplace_back(key, text);
    }
  }
  std::string_view text(std::string_view key) const {
    for (const auto& [k, v] : list_)
      if (k == key) return v;
    return "";
  }
  int64_t integer(std::string_view key) const { return number<int64_t>(text(key)).value_or(0); }
  double real(std::string_view key) const { return number<double>(text(key)).value_or(0); }
  bool ok() const { return ok_; }

 private:
  bool ok_ = true;
  std::vector<std::pair<std::string_view, std::string_view>> list_;
};

bool weight(Line& line, Program& p) {
  WeightDecl w;
  w.name = line.word();
  if (!line.take("[")) return false;
  const auto shape = numbers<int64_t>(line.until(']'));
  const auto format = weight_format(line.word());
  const std::string_view role = line.word();
  const Fields fields(line);
  if (!shape || !format || !fields.ok()) return false;
  w.shape = *shape;
  w.format = *format;
  w.group = fields.text("group");
  for (std::string_view parts = fields.text("parts"); !parts.empty();) {
    const size_t comma = std::min(parts.find(','), parts.size());
    w.parts.emplace_back(parts.substr(0, comma));
    parts.remove_prefix(std::min(comma + 1, parts.size()));
  }
  if (role == "matrix")
    w.role = WeightRole::matrix;
  else if (role == "embedding")
    w.role = WeightRole::embedding;
  else if (role == "lookup")
    w.role = WeightRole::lookup;
  else if (role == "head")
    w.role = WeightRole::head;
  else if (role == "vector")
    w.role = WeightRole::vector;
  else if (role == "router")
    w.role = WeightRole::router;
  else if (role == "expert")
    w.role = WeightRole::expert;
  else
    return false;
  p.weights.push_back(std::move(w));
  return true;
}

bool state(Line& line, Program& p) {
  StateDecl s;
  s.name = line.word();
  const std::string_view kind = line.word();
  const Fields f(line);
  if (kind == "kv")
    s.kind = StateKind::kv;
  else if (kind == "conv")
    s.kind = StateKind::conv;
  else if (kind == "delta")
    s.kind = StateKind::delta;
  else
    return false;
  s.layer = static_cast<int>(f.integer("layer"));
  s.heads = f.integer("heads");
  s.head_dim = f.integer("head_dim");
  s.value_dim = f.integer("value_dim");
  s.window = f.integer("window");
  s.kernel = f.integer("kernel");
  s.key_heads = f.integer("key_heads");
  p.states.push_back(std::move(s));
  return f.ok();
}

bool rope(Line& line, Program& p) {
  RopeTable r;
  r.name = line.word();
  const Fields f(line);
  const auto list = numbers<double>(f.text("inv_freq"));
  if (!list || !f.ok()) return false;
  r.inv_freq = *list;
  r.scaling = f.real("scaling");
  p.rope_tables.push_back(std::move(r));
  return true;
}

bool lookup(Line& line, Program& p) {
  RowLookup l;
  l.input = line.word();
  const Fields f(line);
  l.weight = f.text("weight");
  l.scale = f.real("scale");
  p.lookups.push_back(std::move(l));
  return f.ok();
}

bool program(Line& line, Program& p) {
  p.family = line.word();
  const Fields f(line);
  p.layers = f.integer("layers");
  p.hidden = f.integer("hidden");
  p.vocabulary = f.integer("vocabulary");
  p.max_context = f.integer("max_context");
  p.embedding = f.text("embedding");
  p.embedding_scale = f.real("embedding_scale");
  return f.ok();
}

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<Program> run() {
    Program p;
    while (!rest_.empty()) {
      Line line(next());
      const bool ok = line.done()             ? true
                      : in_function_          ? function_line(line, p)
                      : line.take("program ") ? program(line, p)
                      : line.take("weight ")  ? weight(line, p)
                      : line.take("state ")   ? state(line, p)
                      : line.take("lookup ")  ? lookup(line, p)
                      : line.take("rope ")    ? rope(line, p)
                                              : function_head(line, p);
      if (!ok) return error(Code::bad_format, "graph text, line {}: '{}' cannot be read", line_, current_);
    }
    if (in_function_) return error(Code::bad_format, "graph text: '{}' has no closing brace", p.functions.back().name);
    return p;
  }

 private:
  std::string_view next() {
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    current_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    return current_;
  }

  bool function_head(Line& line, Program& p) {
    const std::string_view name = line.word();
    if (name.empty() || !line.take("{") || !line.done()) return false;
    p.functions.emplace_back().name = name;
    in_function_ = true;
    return true;
  }

  bool function_line(Line& line, Program& p) {
    Function& f = p.functions.back();
    if (line.take("}")) {
      in_function_ = false;
      return line.done();
    }
    if (line.take("return")) return outputs(line, f);
    auto n = node(line, f.nodes.size());
    if (!n) return false;
    f.nodes.push_back(std::move(*n));
    return true;
  }

  std::string_view rest_, current_;
  int line_ = 0;
  bool in_function_ = false;
};

}  // namespace

Result<Program> parse_program(std::string_view text) { return Parser(text).run(); }

Result<Function> parse_function(std::string_view text) {
  auto p = Parser(text).run();
  RETURN_IF_ERROR(p);
  if (p->functions.size() != 1)
    return error(Code::bad_format, "graph text: {} functions, one expected", p->functions.size());
  return std::move(p->functions[0]);
}

}  // namespace onw
