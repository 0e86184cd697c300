#include "store/engine_json.h"

#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "graph/json.h"
#include "graph/shape_rules.h"

namespace onw {
namespace {

using nlohmann::json;

// Dimensions beyond these are no model's: what is computed from them cannot overflow.
constexpr int64_t kMostLayers = 1000, kMostHidden = 1 << 20, kMostVocabulary = 1 << 24, kMostContext = INT32_MAX;

constexpr int64_t kMaxWeightValues = int64_t{1} << 44;  // 16 TiB of bytes: sizes below cannot overflow

// Parts stand in a list, because their order is that of the record.
json to_json(const ExpertRecords& r) {
  json parts = json::array();
  const auto offsets = r.offsets();
  for (size_t i = 0; i < r.parts.size(); ++i)
    parts.push_back({{"name", r.parts[i].name},
                     {"format", name(r.parts[i].format)},
                     {"layout", name(r.parts[i].layout)},
                     {"shape", r.parts[i].shape},
                     {"codes", offsets[i].codes},
                     {"scales", offsets[i].scales},
                     {"minima", offsets[i].minima}});
  return {{"experts", r.experts}, {"record_bytes", r.record_bytes()}, {"parts", parts}};
}

json to_json(const GenerationDefaults& g) {
  json j = json::object();
  const auto put = [&j](const char* key, const auto& value) {
    if (value) j[key] = *value;
  };
  put("temperature", g.temperature);
  put("top_p", g.top_p);
  put("min_p", g.min_p);
  put("repetition_penalty", g.repetition_penalty);
  put("top_k", g.top_k);
  return j;
}

Result<StoredWeight> parse_weight(const std::string& tensor, const json& entry, std::string_view where) {
  const auto format = weight_format(find_string(entry, "format").value_or(""));
  const auto order = layout(find_string(entry, "layout").value_or(""));
  StoredWeight w{.name = tensor, .shape = find_ints(entry, "shape")};
  if (!format || !order)
    return error(Code::bad_format,
                 "{}: '{}' has the format '{}' and layout '{}', which onw does not know. Update onw, or convert again",
                 where, tensor, find_string(entry, "format").value_or(""), find_string(entry, "layout").value_or(""));
  w.format = *format;
  w.layout = *order;
  std::optional<int64_t> values = 1;
  for (const int64_t n : w.shape) values = values && n > 0 ? checked_mul(*values, n) : std::nullopt;
  if (w.shape.empty() || w.shape.size() > 2 || !values || *values > kMaxWeightValues)
    return error(Code::bad_format,
                 "{}: '{}' has the shape [{}], expected one or two sizes of at most 2^44 in all. Convert again", where,
                 tensor, fmt::join(w.shape, ", "));
  const FormatInfo& f = info(*format);
  const int64_t unit = f.plain() ? 1 : f.group == 0 ? 32 : f.group;
  if (w.inputs() % unit != 0)
    return error(Code::bad_format, "{}: '{}' has {} inputs, {} needs a multiple of {}. Convert again", where, tensor,
                 w.inputs(), f.name, unit);
  return w;
}

// Offsets are what they must be: a record of another order is of another version.
Result<ExpertRecords> parse_records(const std::string& tensor, const json& entry, std::string_view where) {
  ExpertRecords r{.name = tensor, .experts = find_int(entry, "experts").value_or(0)};
  const auto parts = entry.find("parts");
  if (parts == entry.end() || !parts->is_array() || parts->empty() || r.experts < 1 || r.experts > kMostExperts)
    return error(Code::bad_format,
                 "{}: '{}' has {} experts and {} parts, expected 1 to {} and at least one. Convert again", where,
                 tensor, r.experts, parts == entry.end() ? 0 : parts->size(), kMostExperts);
  std::vector<PartOffsets> said;
  for (const json& part : *parts) {
    auto weight = parse_weight(find_string(part, "name").value_or(""), part, where);
    RETURN_IF_ERROR(weight);
    r.parts.push_back(std::move(*weight));
    const auto offset = [&part](std::string_view key) { return find_int(part, key).value_or(-1); };
    said.push_back({offset("codes"), offset("scales"), offset("minima")});
  }
  if (said != r.offsets() || find_int(entry, "record_bytes") != r.record_bytes())
    return error(Code::bad_format,
                 "{}: the parts of '{}' lie in another order than onw knows. Update onw, or convert again", where,
                 tensor);
  return r;
}

std::string text(const json& object, std::string_view key) { return find_string(object, key).value_or(""); }

}  // namespace

json to_json(const EngineInfo& e) {
  json root = {
      {"format_version", kEngineFormatVersion},
      {"family", e.family},
      {"dimensions",
       {{"layers", e.layers}, {"hidden", e.hidden}, {"vocabulary", e.vocabulary}, {"max_context", e.max_context}}},
      {"made_for", e.made_for},
      {"runs_on", e.runs_on},
      {"stop_ids", e.stop_ids},
      {"generation", to_json(e.generation)},
      {"files", json::object()},
      {"weights", json::object()}};
  const Provenance& p = e.provenance;
  root["provenance"] = {
      {"source", p.source},   {"revision", p.revision},       {"command", p.command},      {"date", p.date},
      {"licence", p.licence}, {"onw_version", p.onw_version}, {"source_key", p.source_key}};
  for (const auto& [name, f] : e.files)
    root["files"][name] = {
        {"bytes", f.bytes}, {"modified_ns", f.modified_ns}, {"sha256", f.sha256}, {"sampled", f.sampled}};
  for (const StoredWeight& w : e.weights)
    root["weights"][w.name] = {{"format", name(w.format)}, {"layout", name(w.layout)}, {"shape", w.shape}};
  for (const ExpertRecords& r : e.experts) root["experts"][r.name] = to_json(r);
  return root;
}

namespace {

Result<int64_t> dimension(const json& dimensions, std::string_view key, int64_t most, std::string_view where) {
  const auto read = read_int(dimensions, key, where);
  RETURN_IF_ERROR(read);
  if (!*read || **read < 1 || **read > most)
    return error(Code::bad_format, "{}: 'dimensions.{}' is {}, expected 1 to {}. Convert the model again", where, key,
                 *read ? std::to_string(**read) : "missing", most);
  return **read;
}

Result<void> parse_dimensions(const json& dimensions, std::string_view where, EngineInfo& e) {
  const std::tuple<const char*, int64_t*, int64_t> all[] = {{"layers", &e.layers, kMostLayers},
                                                            {"hidden", &e.hidden, kMostHidden},
                                                            {"vocabulary", &e.vocabulary, kMostVocabulary},
                                                            {"max_context", &e.max_context, kMostContext}};
  for (const auto& [key, field, most] : all) {
    const auto n = dimension(dimensions, key, most, where);
    RETURN_IF_ERROR(n);
    *field = *n;
  }
  return {};
}

Result<void> parse_stop_ids(const json& root, std::string_view where, EngineInfo& e) {
  auto ids = read_ints(root, "stop_ids", where);
  RETURN_IF_ERROR(ids);
  for (const int64_t id : *ids)
    if (id < 0 || id >= e.vocabulary)
      return error(Code::bad_format, "{}: 'stop_ids' holds {}, the vocabulary has 0 to {}. Convert the model again",
                   where, id, e.vocabulary - 1);
  e.stop_ids = std::move(*ids);
  return {};
}

}  // namespace

Result<GenerationDefaults> parse_generation(const json& object, std::string_view where) {
  GenerationDefaults g;
  const std::pair<const char*, std::optional<double>*> numbers[] = {{"temperature", &g.temperature},
                                                                    {"top_p", &g.top_p},
                                                                    {"min_p", &g.min_p},
                                                                    {"repetition_penalty", &g.repetition_penalty}};
  for (const auto& [key, value] : numbers) {
    const auto read = read_number(object, key, where);
    RETURN_IF_ERROR(read);
    *value = *read;
  }
  const auto top_k = read_int(object, "top_k", where);
  RETURN_IF_ERROR(top_k);
  if (*top_k && (**top_k < 0 || **top_k > INT32_MAX))
    return error(Code::bad_format, "{}: 'top_k' is {}, expected 0 (off) to 2^31 - 1. Correct it", where, **top_k);
  g.top_k = *top_k;
  return g;
}

Result<EngineInfo> parse_engine(const json& root, std::string_view where) {
  const auto version = find_int(root, "format_version");
  if (!version || *version < 1) return error(Code::bad_format, "{}: no format_version. Convert the model again", where);
  if (*version > kEngineFormatVersion)
    return error(Code::unsupported, "{}: format version {}, this onw reads up to {}. Update onw", where, *version,
                 kEngineFormatVersion);
  EngineInfo e;
  e.family = text(root, "family");
  e.made_for = text(root, "made_for");
  const json* dimensions = find_object(root, "dimensions");
  const json* weights = find_object(root, "weights");
  const json* files = find_object(root, "files");
  if (dimensions == nullptr || weights == nullptr || files == nullptr)
    return error(Code::bad_format, "{}: 'dimensions', 'weights' or 'files' is missing. Convert the model again", where);
  RETURN_IF_ERROR(parse_dimensions(*dimensions, where, e));
  RETURN_IF_ERROR(parse_stop_ids(root, where, e));
  if (const auto it = root.find("runs_on"); it != root.end() && it->is_array())
    for (const json& device : *it)
      if (device.is_string()) e.runs_on.push_back(device.get<std::string>());
  for (const auto& [name, entry] : weights->items()) {
    auto weight = parse_weight(name, entry, where);
    RETURN_IF_ERROR(weight);
    e.weights.push_back(std::move(*weight));
  }
  if (const json* experts = find_object(root, "experts"))
    for (const auto& [name, entry] : experts->items()) {
      auto records = parse_records(name, entry, where);
      RETURN_IF_ERROR(records);
      e.experts.push_back(std::move(*records));
    }
  for (const auto& [name, f] : files->items())
    e.files[name] = {find_int(f, "bytes").value_or(-1), find_int(f, "modified_ns").value_or(0), text(f, "sha256"),
                     text(f, "sampled")};
  if (const json* g = find_object(root, "generation")) {
    const auto generation = parse_generation(*g, where);
    RETURN_IF_ERROR(generation);
    e.generation = *generation;
  }
  if (const json* p = find_object(root, "provenance"))
    e.provenance = {text(*p, "source"),  text(*p, "revision"),    text(*p, "command"),   text(*p, "date"),
                    text(*p, "licence"), text(*p, "onw_version"), text(*p, "source_key")};
  return e;
}

}  // namespace onw
