#include "targets/openvino/weight_form.h"

#include <fmt/format.h>

namespace onw::openvino {
namespace {

std::string_view plain_element(WeightFormat format) {
  return format == WeightFormat::f32 ? "f32" : format == WeightFormat::f16 ? "f16" : "bf16";
}

// Codes as OpenVINO names them; formats with a minimum have unsigned codes.
std::string code_element(const FormatInfo& f) {
  if (f.codebook == Codebook::nf4) return "nf4";
  return fmt::format("{}{}", f.minimum ? "u" : "i", f.storage_bits);
}

Result<IrValue> part(IrWriter& ir, const std::string& name, std::string_view element, Shape shape,
                     std::span<const std::byte> bytes, Constants& constants) {
  const auto offset = constants.place(bytes);
  RETURN_IF_ERROR(offset);
  return ir.constant(name, element, std::move(shape), *offset, static_cast<int64_t>(bytes.size()));
}

IrValue converted(IrWriter& ir, const std::string& name, const IrValue& x, std::string_view element) {
  return ir.layer(name, "Convert", "opset1", fmt::format(R"(destination_type="{}")", element), {x}, element, x.shape);
}

IrValue product(IrWriter& ir, std::string_view label, const IrValue& x, const IrValue& w) {
  return ir.layer(label, "MatMul", "opset1", R"(transpose_a="false" transpose_b="true")", {x, w}, "f32",
                  {x.shape[0], w.shape[0]});
}

Result<IrValue> reshaped(IrWriter& ir, const std::string& name, const IrValue& x, Shape shape, Constants& constants) {
  const auto to = integers(ir, name + "/shape", shape, constants);
  RETURN_IF_ERROR(to);
  return ir.layer(name, "Reshape", "opset1", R"(special_zero="false")", {x, *to}, x.element, std::move(shape));
}

// scale * code as f32 [out, in].
Result<IrValue> scaled_codes(IrWriter& ir, const std::string& name, const WeightView& w, Constants& constants) {
  const bool grouped = w.groups() > 1;
  const Shape codes_shape = grouped ? Shape{w.outputs, w.groups(), w.group()} : Shape{w.outputs, w.inputs};
  const Shape scales_shape = grouped ? Shape{w.outputs, w.groups(), 1} : Shape{w.outputs, 1};
  const auto codes = part(ir, name, code_element(info(w.format)), codes_shape, w.codes, constants);
  RETURN_IF_ERROR(codes);
  const auto scales = part(ir, name + ".scales", "f16", scales_shape, w.scales, constants);
  RETURN_IF_ERROR(scales);
  const IrValue numbers = converted(ir, name + "/f16", *codes, "f16");
  IrValue values = ir.layer(name + "/scaled", "Multiply", "opset1", R"(auto_broadcast="numpy")", {numbers, *scales},
                            "f16", codes_shape);
  if (grouped) {
    auto flat = reshaped(ir, name + "/rows", values, {w.outputs, w.inputs}, constants);
    RETURN_IF_ERROR(flat);
    values = *flat;
  }
  return converted(ir, name + "/f32", values, "f32");
}

// m [out, groups] times the groups' sums of x.
Result<IrValue> minimum_product(IrWriter& ir, const std::string& label, const IrValue& x, const std::string& name,
                                const WeightView& w, Constants& constants) {
  const auto minima = part(ir, name + ".minima", "f16", {w.outputs, w.groups()}, w.minima, constants);
  RETURN_IF_ERROR(minima);
  const auto grouped = reshaped(ir, label + ".groups", x, {x.shape[0], w.groups(), w.group()}, constants);
  RETURN_IF_ERROR(grouped);
  const auto axis = integers(ir, label + ".sums/axis", {2}, constants);
  RETURN_IF_ERROR(axis);
  const IrValue sums = ir.layer(label + ".sums", "ReduceSum", "opset1", R"(keep_dims="false")", {*grouped, *axis},
                                "f32", {x.shape[0], w.groups()});
  return product(ir, label + ".minima", sums, converted(ir, name + ".minima/f32", *minima, "f32"));
}

}  // namespace

Result<IrValue> integers(IrWriter& ir, std::string_view name, const std::vector<int64_t>& values,
                         Constants& constants) {
  const auto bytes = std::as_bytes(std::span(values));
  const auto offset = constants.add(bytes);
  RETURN_IF_ERROR(offset);
  return ir.constant(name, "i64", {static_cast<int64_t>(values.size())}, *offset, static_cast<int64_t>(bytes.size()));
}

Result<IrValue> weight_values(IrWriter& ir, std::string_view weight, const WeightView& view, const Shape& shape,
                              Constants& constants) {
  if (!info(view.format).plain())
    return error(Code::unsupported, "'{}' is {}: only products take such a weight on OpenVINO", weight,
                 name(view.format));
  const std::string label(weight);
  const auto values = part(ir, label, plain_element(view.format), shape, view.codes, constants);
  RETURN_IF_ERROR(values);
  return values->element == "f32" ? *values : converted(ir, label + "/f32", *values, "f32");
}

Result<IrValue> weight_product(IrWriter& ir, std::string_view label, const IrValue& x, std::string_view weight,
                               const WeightView& view, Constants& constants) {
  if (view.layout != Layout::rows) return error(Code::unsupported, "'{}' lies in tiles, OpenVINO reads rows", weight);
  const std::string name(weight), step(label);
  const FormatInfo& f = info(view.format);
  if (f.plain()) {
    const auto w = weight_values(ir, weight, view, {view.outputs, view.inputs}, constants);
    RETURN_IF_ERROR(w);
    return product(ir, label, x, *w);
  }
  const auto w = scaled_codes(ir, name, view, constants);
  RETURN_IF_ERROR(w);
  if (!f.minimum) return product(ir, label, x, *w);
  const IrValue main = product(ir, step + ".codes", x, *w);
  const auto rest = minimum_product(ir, step, x, name, view, constants);
  RETURN_IF_ERROR(rest);
  return ir.layer(label, "Add", "opset1", R"(auto_broadcast="numpy")", {main, *rest}, "f32", main.shape);
}

}  // namespace onw::openvino
