// The forms in which OpenVINO's plugins take a weight with its codes.
#pragma once

#include <string>
#include <string_view>

#include "graph/weight_view.h"
#include "targets/openvino/constants.h"
#include "targets/openvino/ir.h"

namespace onw::openvino {

// x times the transposed weight, [rows, outputs], for x [rows, inputs] f32.
//
//   plain      Const f16 -> Convert f32 -> MatMul
//   channels   Const i8 [out, in] -> Convert f16 -> Multiply(Const f16 [out, 1]) -> Convert f32 -> MatMul
//   groups     Const i4 [out, groups, group] -> Convert f16 -> Multiply(Const f16 [out, groups, 1]) -> Reshape [out,
//   in]
//              -> Convert f32 -> MatMul
//   minimum    w = d * code + m: the product with d * code as above, codes unsigned, plus the product of m [out,
//   groups]
//              with the groups' sums of x. A zero point -m / d would be another number, and has no value where d is 0.
//
// Errors: unsupported for a weight that lies in tiles; those of Constants.
Result<IrValue> weight_product(IrWriter& ir, std::string_view label, const IrValue& x, std::string_view weight,
                               const WeightView& view, Constants& constants);

// A vector or a plain matrix as f32, for any other use.
Result<IrValue> weight_values(IrWriter& ir, std::string_view weight, const WeightView& view, const Shape& shape,
                              Constants& constants);

// A small constant of integers, for axes and shapes.
Result<IrValue> integers(IrWriter& ir, std::string_view name, const std::vector<int64_t>& values, Constants& constants);

}  // namespace onw::openvino
