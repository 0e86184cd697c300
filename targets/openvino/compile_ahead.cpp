#include "targets/openvino/compile_ahead.h"

#include <algorithm>
#include <iterator>

#include "graph/ops.h"
#include "targets/openvino/attention_shapes.h"
#include "targets/openvino/fused.h"

namespace onw::openvino {
namespace {

struct Ahead {
  const Program& program;
  const WeightSet& weights;
  const OpenVinoOptions& options;
  std::string_view formats;  // the device's column
  ChunkForm cache;
  CutFunction cut = {};

  Result<void> store(std::span<const CompileJob> jobs, const Constants& constants, StoredGraphs& to) const {
    const CancelToken never;
    auto blobs = compile_for_later(jobs, constants, device_properties(options, program), options,
                                   options.blobs->cancel ? *options.blobs->cancel : never);
    RETURN_IF_ERROR(blobs);
    std::ranges::move(*blobs, std::back_inserter(to.blobs));
    return {};
  }

  Result<void> store_attention(StoredGraphs& to) const {
    for (const AttentionShape& shape : attention_shapes(program, cut, cache, options.block_rows)) {
      const auto lowered = lower_attention(shape, formats);
      RETURN_IF_ERROR(lowered);
      const CompileJob job = attention_job(shape, lowered->ir);
      RETURN_IF_ERROR(store(std::span(&job, 1), lowered->constants, to));
    }
    return {};
  }

  Result<void> store_fused_form(const CutFunction& pieces, const FusedForm& form, StoredGraphs& to) const {
    auto constants = Constants::create(weights);
    RETURN_IF_ERROR(constants);
    const auto graphs = lower_fused(program, pieces, form, cache, weights, *constants, formats);
    RETURN_IF_ERROR(graphs);
    return store(fused_jobs(form, *graphs), *constants, to);
  }

  // A length that does not compile ends those of its number of rows: a longer one would not compile either.
  Result<void> store_fused(StoredGraphs& to) const {
    const Function& body = *program.function("body");
    const CutFunction pieces = cut_in_pieces(body, options.fused.layers > 0 ? options.fused.layers : program.layers);
    std::vector<int64_t> without;
    const std::vector<FusedForm> forms = fused_forms(options.block_rows, cache);
    for (const FusedForm& form : forms) {
      const bool wanted = form.length == forms.front().length || form.length / 2 < options.fused.at_once_positions;
      if (!wanted || std::ranges::find(without, form.rows) != without.end()) continue;
      const auto stored = store_fused_form(pieces, form, to);
      if (stored) {
        to.fused_tokens = std::max(to.fused_tokens, form.length);
        continue;
      }
      const Code code = stored.error().code;
      if (code == Code::cancelled || code == Code::no_space || code == Code::io) return stored;
      if (to.fused_trouble.empty()) to.fused_trouble = stored.error().message;
      without.push_back(form.rows);
    }
    return {};
  }
};

}  // namespace

Result<StoredGraphs> compile_everything_into_store(const Program& program, const WeightSet& weights,
                                                   const OpenVinoOptions& options, std::string_view device) {
  CHECK(options.blobs.has_value() && !options.block_rows.empty());
  const int64_t context =
      options.max_context > 0 ? std::min(options.max_context, program.max_context) : program.max_context;
  Ahead ahead{.program = program,
              .weights = weights,
              .options = options,
              .formats = device,
              .cache = chunk_form(program, {.kv = options.kv,
                                            .max_context = context,
                                            .base = options.chunk_positions,
                                            .max_step_rows = options.max_step_rows})};
  auto cut = cut_for_fixed_rows(*program.function("body"));
  RETURN_IF_ERROR(cut);
  ahead.cut = std::move(*cut);
  StoredGraphs stored;
  auto segments = compile_into_store(program, weights, options, device);
  RETURN_IF_ERROR(segments);
  stored.blobs = std::move(*segments);
  RETURN_IF_ERROR(ahead.store_attention(stored));
  if (options.fused.variants > 0 && can_fuse(ahead.cut)) RETURN_IF_ERROR(ahead.store_fused(stored));
  return stored;
}

}  // namespace onw::openvino
