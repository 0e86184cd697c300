#include "convert/write_weight.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "base/checked.h"
#include "quant/error.h"
#include "quant/relayout.h"

namespace onw {
namespace {

constexpr int64_t kSlabValues = 1 << 20;  // 4 MB of FP32 for each thread, some 12 MB with all its copies
constexpr int kMaxThreads = 8;

// The parts of some rows in one layout, with their memory.
struct Buffer {
  std::vector<std::byte> codes, scales, minima;

  explicit Buffer(const WeightBytes& bytes) : codes(bytes.codes), scales(bytes.scales), minima(bytes.minima) {}
  WeightParts parts() { return {codes, scales, minima}; }
  WeightPiece piece() const { return {codes, scales, minima}; }
};

struct Slab {
  Buffer stored{WeightBytes{}};
  WeightError error, nf4;
  int64_t raised_scales = 0;
};

// Rows [first, first + count) in the chosen format and layout, with their error.
Result<Slab> make_slab(const WeightJob& job, const RowReader& reader, int64_t first, int64_t count) {
  const int64_t inputs = reader.inputs();
  const WeightFormat format = job.choice.format;
  std::vector<float> values(count * inputs);
  RETURN_IF_ERROR(reader.read(first, count, values.data()));
  Buffer rows(weight_bytes(format, Layout::rows, count, inputs));
  Slab slab;
  if (job.choice.take_over) {
    RETURN_IF_ERROR(reader.take_over(format, first, count, rows.parts()));
  } else {
    const QuantiseHints hints{job.choice.least_scale, job.importance};
    const auto raised = quantise(format, values, count, inputs, rows.parts(), hints);
    RETURN_IF_ERROR(raised);
    slab.raised_scales = *raised;
  }
  const WeightView view{format, Layout::rows, count, inputs, rows.codes, rows.scales, rows.minima};
  slab.error = weight_error(values, view);
  if (info(format).codebook == Codebook::nf4) slab.nf4 = nf4_rounding_error(view);
  if (job.choice.layout == Layout::rows) {
    slab.stored = std::move(rows);
    return slab;
  }
  const int64_t blocks = output_blocks(view);
  Buffer tiles(block_bytes(view, Layout::tiles, 0, blocks));
  relayout(view, 0, blocks, tiles.parts());
  slab.stored = std::move(tiles);
  return slab;
}

// Slabs [0, count) of a round, on as many threads.
std::vector<Result<Slab>> make_slabs(const WeightJob& job, const RowReader& reader, int64_t first, int64_t rows,
                                     int count) {
  std::vector<Result<Slab>> slabs(count, Slab{});
  const auto make = [&](int i) {
    const int64_t begin = first + i * rows;
    slabs[i] = make_slab(job, reader, begin, std::min(rows, reader.outputs() - begin));
  };
  std::vector<std::jthread> threads;
  for (int i = 1; i < count; ++i) threads.emplace_back(make, i);
  make(0);
  return slabs;
}

// Mean squares of inputs that are divided by 2^exponents.
std::vector<float> importance_of_altered(std::span<const float> mean_squares, std::span<const int8_t> exponents) {
  std::vector<float> altered(mean_squares.begin(), mean_squares.end());
  for (size_t i = 0; i < altered.size() && i < exponents.size(); ++i)
    altered[i] = std::ldexp(altered[i], -2 * exponents[i]);
  return altered;
}

}  // namespace

Result<TensorReport> write_weight(const WeightJob& published, const Alteration& alteration, size_t index,
                                  WeightFileWriter& out, const std::function<bool(int64_t)>& after_slab) {
  WeightJob job = published;
  const auto importance = importance_of_altered(published.importance, alteration.input_exponents);
  job.importance = importance;
  const RowReader reader(job.tensor, *job.weight, *job.from, alteration.exponents, alteration.input_exponents);
  const int64_t slab_rows = std::max<int64_t>(16, kSlabValues / reader.inputs() / 16 * 16);
  const int threads = std::clamp<int>(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
  WeightError error, nf4;
  int64_t raised_scales = 0;
  for (int64_t first = 0; first < reader.outputs(); first += threads * slab_rows) {
    const auto count = static_cast<int>(std::min<int64_t>(threads, ceil_div(reader.outputs() - first, slab_rows)));
    for (Result<Slab>& slab : make_slabs(job, reader, first, slab_rows, count)) {
      if (!slab) return failure(std::move(slab), fmt::format("{} ('{}')", job.weight->name, job.tensor.name));
      RETURN_IF_ERROR(out.append(index, slab->stored.piece()));
      error.add(slab->error);
      nf4.add(slab->nf4);
      raised_scales += slab->raised_scales;
      const auto bytes =
          static_cast<int64_t>(slab->stored.codes.size() + slab->stored.scales.size() + slab->stored.minima.size());
      if (!after_slab(bytes)) return onw::error(Code::cancelled, "stopped; the same command goes on from here");
    }
  }
  TensorReport report{.name = job.weight->name, .source_type = job.tensor.type_name, .shape = job.weight->shape};
  report.format = job.choice.format;
  report.layout = job.choice.layout;
  report.relative_rms = error.relative_rms();
  report.nf4_rounding = nf4.relative_rms();
  report.codes_exact = job.choice.take_over;
  report.why = job.choice.why;
  report.altered = alteration.what;
  if (raised_scales > 0)
    report.altered += fmt::format("{}{} scales raised to 2^-14", report.altered.empty() ? "" : "; ", raised_scales);
  return report;
}

}  // namespace onw
