// The weights of the layer that predicts one token further (models/mtp.h), as far as a published model has them.
#pragma once

#include <string>
#include <vector>

#include "convert/choose_format.h"
#include "convert/model_source.h"

namespace onw {

struct MtpWeights {
  std::vector<WeightDecl> weights;  // beside those of the model; none where the layer is left out
  std::string left_out;             // why, where the config declares one
};

// All of them or none: a layer of which a part is missing or does not fit predicts nothing. `residual_shift` as asked
// for: with one the layer is left out.
MtpWeights find_mtp_weights(const Program& program, const ModelSource& source, const FormatRequest& request,
                            int residual_shift);

}  // namespace onw
