// The rules that multiply weights by powers of two on their way into the model folder, so that graphs stay simple and
// small formats suffice. Each leaves every logit of exact arithmetic as it was. What they do not need is left as
// published, and what they did is in the weight's report.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/equalise_inputs.h"
#include "convert/model_source.h"

namespace onw {

// Output row r of a weight is multiplied by 2^exponents[r], and column c by 2^input_exponents[c].
struct Alteration {
  std::vector<int8_t> exponents;        // [outputs], of a stack those of each expert; empty: rows stay as they are
  std::vector<int8_t> input_exponents;  // [inputs]; empty: columns stay as they are
  std::string what = {};                // for the report
};

// By what the channels of each norm's output are divided (convert/equalise_inputs.h).
struct InputAlteration {
  NormReaders of;
  std::vector<int8_t> exponents;  // [channels]
};

class WeightRules {
 public:
  // `program` is that of the source's config, `residual_shift` what is asked for (0: nothing). Both outlive the rules.
  // None of the readers in `inputs` keeps codes of the source. Errors: unsupported where the family's residual stream
  // cannot be scaled.
  static Result<WeightRules> make(const Program& program, const ModelSource& source, int residual_shift,
                                  std::span<const InputAlteration> inputs = {});

  // Residual: the weights that write to the stream are divided by 2^residual_shift (models/residual.h).
  // Keys: q and k of a layer, or their norms where it has them, are equalised (convert/equalise_keys.h). The sizes that
  // decide are expected from the weights alone: norms where there are some; else, for inputs of independent elements
  // with a mean square of 1, each row's root of sum (w x attn_norm)^2 + bias^2.
  // Inputs: norms and their readers as `make` was told.
  // Weights are read once per layer, a slab at a time. Errors: those of reading them.
  Result<Alteration> of(const WeightDecl& weight);

 private:
  // Exponents of one layer's keys: [key heads][pairs]; norms are shared by all heads, so they have one list.
  using LayerExponents = std::vector<std::vector<int8_t>>;

  Result<const LayerExponents*> layer_exponents(const std::string& attention);
  Result<LayerExponents> exponents_by_norms(const WeightDecl& q_norm, const WeightDecl& k_norm) const;
  Result<LayerExponents> exponents_by_rows(const std::string& attention) const;
  Result<std::vector<double>> row_sizes(const std::string& weight, const std::vector<float>& gains) const;
  Result<std::vector<float>> vector_of(const WeightDecl& weight) const;
  Result<Alteration> keys_equalised(const WeightDecl& weight);
  Result<Alteration> rows_altered(const WeightDecl& weight);

  const Program* program_ = nullptr;
  const ModelSource* source_ = nullptr;
  int residual_shift_ = 0;
  bool own_keys_ = true;  // no layer reads another's
  std::set<std::string> residual_writers_;
  std::map<std::string, std::vector<int8_t>> norms_, readers_;  // what channels are divided by
  std::map<std::string, LayerExponents> layers_;                // by "layers.3.attn"
};

}  // namespace onw
