// Writes OpenVINO IR, the text form of its graphs: layers with numbered ports, and edges between them. Words are
// OpenVINO's: https://docs.openvino.ai, "Operation Sets".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/type.h"

namespace onw::openvino {

// An output of a layer, with what is known of it.
struct IrValue {
  int layer = -1;
  std::string element;  // "f32", "i4", "boolean"
  Shape shape;          // kRows where it is dynamic
};

class IrWriter {
 public:
  explicit IrWriter(std::string_view name) : name_(name) {}

  IrValue parameter(std::string_view name, std::string_view element, Shape shape);
  IrValue constant(std::string_view name, std::string_view element, Shape shape, int64_t offset, int64_t bytes);
  // `attributes` are those of the layer's <data>: R"(axis="1")".
  IrValue layer(std::string_view name, std::string_view type, std::string_view opset, std::string_view attributes,
                std::span<const IrValue> inputs, std::string_view element, Shape shape);
  IrValue layer(std::string_view name, std::string_view type, std::string_view opset, std::string_view attributes,
                std::initializer_list<IrValue> inputs, std::string_view element, Shape shape) {
    return layer(name, type, opset, attributes, std::span(inputs.begin(), inputs.size()), element, std::move(shape));
  }
  // Gives the value a name by which a request knows it.
  void result(std::string_view name, const IrValue& value);

  std::string text() const;

 private:
  struct Layer {
    std::string name, type, opset, attributes;
    std::vector<IrValue> inputs;
    IrValue output;                  // layer -1: none
    std::vector<std::string> names;  // of the output's tensor
  };
  static std::string layer_text(int id, const Layer& layer);

  std::string name_;
  std::vector<Layer> layers_;
};

}  // namespace onw::openvino
