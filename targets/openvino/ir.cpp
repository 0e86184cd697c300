#include "targets/openvino/ir.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace onw::openvino {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// "f32" of a layer's data is "FP32" of its ports.
std::string precision(std::string_view element) {
  if (element == "boolean") return "BOOL";
  if (element == "bf16") return "BF16";
  if (element == "nf4") return "NF4";
  const char kind = element.front();
  if (kind == 'f') return fmt::format("FP{}", element.substr(1));
  return fmt::format("{}{}", static_cast<char>(kind - 'a' + 'A'), element.substr(1));
}

std::string dims(const Shape& shape) {
  std::string text;
  for (const int64_t d : shape) text += fmt::format("<dim>{}</dim>", d);
  return text;
}

std::string shape_text(const Shape& shape) {
  std::string text;
  for (const int64_t d : shape) text += (text.empty() ? "" : ",") + (d == kRows ? "?" : fmt::format("{}", d));
  return text;
}

}  // namespace

IrValue IrWriter::parameter(std::string_view name, std::string_view element, Shape shape) {
  const auto attributes = fmt::format(R"(shape="{}" element_type="{}")", shape_text(shape), element);
  const IrValue value = layer(name, "Parameter", "opset1", attributes, {}, element, std::move(shape));
  layers_.back().names.emplace_back(name);
  return value;
}

IrValue IrWriter::constant(std::string_view name, std::string_view element, Shape shape, int64_t offset,
                           int64_t bytes) {
  const auto attributes =
      fmt::format(R"(element_type="{}" shape="{}" offset="{}" size="{}")", element, shape_text(shape), offset, bytes);
  return layer(name, "Const", "opset1", attributes, {}, element, std::move(shape));
}

IrValue IrWriter::layer(std::string_view name, std::string_view type, std::string_view opset,
                        std::string_view attributes, std::span<const IrValue> inputs, std::string_view element,
                        Shape shape) {
  const IrValue output{static_cast<int>(layers_.size()), std::string(element), std::move(shape)};
  layers_.push_back({std::string(name),
                     std::string(type),
                     std::string(opset),
                     std::string(attributes),
                     {inputs.begin(), inputs.end()},
                     output,
                     {}});
  return output;
}

void IrWriter::result(std::string_view name, const IrValue& value) {
  layers_[static_cast<size_t>(value.layer)].names.emplace_back(name);
  layers_.push_back({fmt::format("{}/result", name), "Result", "opset1", "", {value}, {}, {}});
}

std::string IrWriter::layer_text(int id, const Layer& l) {
  std::string text =
      fmt::format("<layer id=\"{}\" name=\"{}\" type=\"{}\" version=\"{}\">", id, escaped(l.name), l.type, l.opset);
  if (!l.attributes.empty()) text += fmt::format("<data {}/>", l.attributes);
  const auto port = [&](size_t number, const IrValue& v, const std::string& names) {
    text +=
        fmt::format("<port id=\"{}\" precision=\"{}\"{}>{}</port>", number, precision(v.element), names, dims(v.shape));
  };
  if (!l.inputs.empty()) {
    text += "<input>";
    for (size_t i = 0; i < l.inputs.size(); ++i) port(i, l.inputs[i], "");
    text += "</input>";
  }
  if (l.output.layer >= 0) {
    text += "<output>";
    port(l.inputs.size(), l.output,
         l.names.empty() ? "" : fmt::format(" names=\"{}\"", escaped(fmt::format("{}", fmt::join(l.names, ",")))));
    text += "</output>";
  }
  return text + "</layer>\n";
}

std::string IrWriter::text() const {
  std::string text =
      fmt::format("<?xml version=\"1.0\"?>\n<net name=\"{}\" version=\"11\">\n<layers>\n", escaped(name_));
  for (size_t i = 0; i < layers_.size(); ++i) text += layer_text(static_cast<int>(i), layers_[i]);
  text += "</layers>\n<edges>\n";
  for (size_t i = 0; i < layers_.size(); ++i)
    for (size_t at = 0; at < layers_[i].inputs.size(); ++at) {
      const int from = layers_[i].inputs[at].layer;
      text += fmt::format("<edge from-layer=\"{}\" from-port=\"{}\" to-layer=\"{}\" to-port=\"{}\"/>\n", from,
                          layers_[static_cast<size_t>(from)].inputs.size(), i, at);
    }
  return text + "</edges>\n</net>\n";
}

}  // namespace onw::openvino
