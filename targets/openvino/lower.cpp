#include "targets/openvino/lower.h"

#include <array>
#include <map>

#include "graph/ops.h"
#include "passes/legalize_npu.h"
#include "store/runs_on.h"
#include "targets/openvino/weight_form.h"

namespace onw::openvino {
namespace {

constexpr std::string_view kNumpy = R"(auto_broadcast="numpy")";

// Ops whose OpenVINO layer takes the same operands and no constants.
struct PlainForm {
  Op op;
  std::string_view type, opset, attributes;
};
constexpr std::array kPlainForms = {
    PlainForm{Op::add, "Add", "opset1", kNumpy},
    PlainForm{Op::subtract, "Subtract", "opset1", kNumpy},
    PlainForm{Op::multiply, "Multiply", "opset1", kNumpy},
    PlainForm{Op::divide, "Divide", "opset1", R"(auto_broadcast="numpy" m_pythondiv="true")"},
    PlainForm{Op::maximum, "Maximum", "opset1", kNumpy},
    PlainForm{Op::minimum, "Minimum", "opset1", kNumpy},
    PlainForm{Op::power, "Power", "opset1", kNumpy},
    PlainForm{Op::less, "Less", "opset1", kNumpy},
    PlainForm{Op::select, "Select", "opset1", kNumpy},
    PlainForm{Op::sqrt, "Sqrt", "opset1", ""},
    PlainForm{Op::exp, "Exp", "opset1", ""},
    PlainForm{Op::tanh, "Tanh", "opset1", ""},
    PlainForm{Op::erf, "Erf", "opset1", ""},
    PlainForm{Op::sigmoid, "Sigmoid", "opset1", ""},
    PlainForm{Op::abs, "Abs", "opset1", ""},
    PlainForm{Op::round, "Round", "opset5", R"(mode="half_to_even")"},
    PlainForm{Op::softmax, "SoftMax", "opset8", R"(axis="-1")"},
};

Result<std::string_view> element_of(const Type& type) {
  switch (type.dtype) {
    case DType::f32:
      return "f32";
    case DType::f16:
      return "f16";
    case DType::i8:
      return "i8";
    case DType::u8:
      return "u8";
    case DType::i4:
      return "i4";
    case DType::i32:
      return "i32";
    case DType::boolean:
      return "boolean";
    default:
      return error(Code::unsupported, "{} has no OpenVINO type", to_string(type));
  }
}

class Lowering {
 public:
  Lowering(const Function& f, const WeightSet& weights, Constants& constants, std::string_view device)
      : f_(f), weights_(weights), constants_(constants), device_(device), ir_(f.name) {}

  Result<Ir> run() {
    values_.resize(f_.nodes.size());
    for (size_t i = 0; i < f_.nodes.size(); ++i) {
      const Node& n = f_.nodes[i];
      if (n.op == Op::weight) continue;  // by who reads it
      auto value = lower(n);
      if (!value) return failure(std::move(value), n.label);
      values_[i] = std::move(*value);
    }
    for (const Output& o : f_.outputs) {
      ir_.result(o.name, values_[static_cast<size_t>(o.value.id)]);
      out_.outputs.push_back({o.name, f_.type(o.value)});
    }
    out_.xml = ir_.text();
    return std::move(out_);
  }

 private:
  bool is_weight(Value v) const { return f_.node(v).op == Op::weight; }

  Result<WeightView> find(Value v) const {
    const std::string& name = f_.node(v).label;
    auto view = weights_.find(name);
    RETURN_IF_ERROR(view);
    if (support(view->format, device_) == Support::refused)
      return error(Code::unsupported, "'{}' is {}, which {} does not compute with. Convert the model anew: {}", name,
                   onw::name(view->format), device_, remedy(device_));
    return view;
  }

  // An operand of arithmetic; weights become their values there.
  Result<IrValue> operand(Value v) {
    if (!is_weight(v)) return values_[static_cast<size_t>(v.id)];
    const auto view = find(v);
    RETURN_IF_ERROR(view);
    return weight_values(ir_, f_.node(v).label, *view, f_.type(v).shape, constants_);
  }

  Result<std::vector<IrValue>> operands(const Node& n) {
    std::vector<IrValue> in;
    for (const Value v : n.inputs) {
      auto one = operand(v);
      RETURN_IF_ERROR(one);
      in.push_back(std::move(*one));
    }
    return in;
  }

  // A layer of the node's operands and small integer constants behind them.
  Result<IrValue> layer(const Node& n, std::string_view type, std::string_view opset, std::string_view attributes,
                        std::initializer_list<std::vector<int64_t>> constants = {}) {
    auto in = operands(n);
    RETURN_IF_ERROR(in);
    for (const auto& values : constants) {
      auto c = integers(ir_, fmt::format("{}/{}", n.label, in->size()), values, constants_);
      RETURN_IF_ERROR(c);
      in->push_back(std::move(*c));
    }
    const auto element = element_of(n.type);
    RETURN_IF_ERROR(element);
    return ir_.layer(n.label, type, opset, attributes, *in, *element, n.type.shape);
  }

  Result<IrValue> input(const Node& n) {
    const auto element = element_of(n.type);
    RETURN_IF_ERROR(element);
    out_.inputs.push_back({n.label, n.type});
    return ir_.parameter(n.label, *element, n.type.shape);
  }

  Result<IrValue> constant(const Node& n) {
    if (n.type.dtype != DType::f32) return error(Code::unsupported, "a constant of {}", to_string(n.type));
    const auto bytes = std::as_bytes(std::span(n.constant));
    const auto offset = constants_.add(bytes);
    RETURN_IF_ERROR(offset);
    return ir_.constant(n.label, "f32", n.type.shape, *offset, static_cast<int64_t>(bytes.size()));
  }

  Result<IrValue> matmul(const Node& n) {
    const bool transposed = n.attributes.integer("transpose_b") != 0;
    if (!is_weight(n.inputs[1]))
      return layer(
          n, "MatMul", "opset1",
          transposed ? R"(transpose_a="false" transpose_b="true")" : R"(transpose_a="false" transpose_b="false")");
    if (!transposed || is_weight(n.inputs[0]))
      return error(Code::unsupported, "a product with a weight that is not transposed");
    const auto view = find(n.inputs[1]);
    RETURN_IF_ERROR(view);
    return weight_product(ir_, n.label, values_[static_cast<size_t>(n.inputs[0].id)], f_.node(n.inputs[1]).label, *view,
                          constants_);
  }

  int64_t axis_of(const Node& n) const {
    const int64_t axis = n.attributes.integer("axis", -1);
    return axis < 0 ? axis + static_cast<int64_t>(f_.type(n.inputs[0]).shape.size()) : axis;
  }

  Result<IrValue> lower(const Node& n) {
    for (const PlainForm& form : kPlainForms)
      if (form.op == n.op) return layer(n, form.type, form.opset, form.attributes);
    switch (n.op) {
      case Op::input:
        return input(n);
      case Op::constant:
        return constant(n);
      case Op::matmul:
        return matmul(n);
      case Op::convert: {
        const auto element = element_of(n.type);
        RETURN_IF_ERROR(element);
        return layer(n, "Convert", "opset1", fmt::format(R"(destination_type="{}")", *element));
      }
      case Op::reshape:
        return layer(n, "Reshape", "opset1", R"(special_zero="false")", {n.type.shape});
      case Op::transpose:
        return layer(n, "Transpose", "opset1", "", {n.attributes.integers("order")});
      case Op::broadcast:
        return layer(n, "Broadcast", "opset3", R"(mode="numpy")", {n.type.shape});
      case Op::concat:
        return layer(n, "Concat", "opset1", fmt::format(R"(axis="{}")", axis_of(n)));
      case Op::slice:
        return layer(n, "Slice", "opset8", "",
                     {{n.attributes.integer("begin")}, {n.attributes.integer("end")}, {1}, {axis_of(n)}});
      case Op::gather:
        return layer(n, "Gather", "opset8", R"(batch_dims="0")", {{0}});
      case Op::reduce_sum:
        return layer(n, "ReduceSum", "opset1", R"(keep_dims="true")", {{axis_of(n)}});
      case Op::reduce_max:
        return layer(n, "ReduceMax", "opset1", R"(keep_dims="true")", {{axis_of(n)}});
      default:
        return error(Code::unsupported, "'{}' has no OpenVINO form", name(n.op));
    }
  }

  const Function& f_;
  const WeightSet& weights_;
  Constants& constants_;
  std::string_view device_;
  IrWriter ir_;
  std::vector<IrValue> values_;
  Ir out_;
};

}  // namespace

namespace {

// What an NPU's compiler would end on, with or without a reason.
Result<void> check_shapes(const Function& f, std::string_view device) {
  for (const Node& n : f.nodes)
    for (const int64_t d : n.type.shape)
      if (d == kRows)
        return error(Code::unsupported, "{}: {} takes graphs of fixed shapes alone: lower it for a number of rows",
                     n.label, device);
  return {};
}

}  // namespace

Result<Ir> lower(const Function& primitive, const WeightSet& weights, Constants& constants, std::string_view device) {
  const auto lowered = [&]() -> Result<Ir> {
    if (!is_npu(device)) return Lowering(primitive, weights, constants, device).run();
    RETURN_IF_ERROR(check_shapes(primitive, device));
    const auto legal = legalize_npu(primitive);
    RETURN_IF_ERROR(legal);
    return Lowering(*legal, weights, constants, device).run();
  };
  auto ir = lowered();
  if (!ir) return failure(std::move(ir), primitive.name);
  return ir;
}

}  // namespace onw::openvino
