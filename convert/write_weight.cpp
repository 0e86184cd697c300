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

WeightParts parts_of(StoredRows& rows, const WeightBytes& bytes) {
  rows.codes.resize(static_cast<size_t>(bytes.codes));
  rows.scales.resize(static_cast<size_t>(bytes.scales));
  rows.minima.resize(static_cast<size_t>(bytes.minima));
  return {rows.codes, rows.scales, rows.minima};
}

}  // namespace

Result<StoredRows> store_rows(const WeightJob& job, const RowReader& reader, int64_t first, int64_t count) {
  const int64_t inputs = reader.inputs();
  const WeightFormat format = job.choice.format;
  std::vector<float> values(static_cast<size_t>(count * inputs));
  RETURN_IF_ERROR(reader.read(first, count, values.data()));
  StoredRows rows;
  const WeightParts parts = parts_of(rows, weight_bytes(format, Layout::rows, count, inputs));
  if (job.choice.take_over) {
    RETURN_IF_ERROR(reader.take_over(format, first, count, parts));
  } else {
    const QuantiseHints hints{job.choice.least_scale, job.importance};
    const auto raised = quantise(format, values, count, inputs, parts, hints);
    RETURN_IF_ERROR(raised);
    rows.raised_scales = *raised;
  }
  const WeightView view{format, Layout::rows, count, inputs, rows.codes, rows.scales, rows.minima};
  rows.error = weight_error(values, view);
  if (info(format).codebook == Codebook::nf4) rows.nf4 = nf4_rounding_error(view);
  if (job.choice.layout == Layout::rows) return rows;
  const int64_t blocks = output_blocks(view);
  StoredRows tiles{.error = rows.error, .nf4 = rows.nf4, .raised_scales = rows.raised_scales};
  relayout(view, 0, blocks, parts_of(tiles, block_bytes(view, Layout::tiles, 0, blocks)));
  return tiles;
}

TensorReport report_of(const WeightJob& job, const StoredRows& sums, std::string altered) {
  TensorReport report{.name = job.weight->name, .source_type = job.tensor.type_name, .shape = job.weight->shape};
  report.format = job.choice.format;
  report.layout = job.choice.layout;
  report.relative_rms = sums.error.relative_rms();
  report.nf4_rounding = sums.nf4.relative_rms();
  report.codes_exact = job.choice.take_over;
  report.why = job.choice.why;
  report.altered = std::move(altered);
  if (sums.raised_scales > 0)
    report.altered +=
        fmt::format("{}{} scales raised to 2^-14", report.altered.empty() ? "" : "; ", sums.raised_scales);
  return report;
}

namespace {

// Slabs [0, count) of a round, on as many threads.
std::vector<Result<StoredRows>> make_slabs(const WeightJob& job, const RowReader& reader, int64_t first, int64_t rows,
                                           int count) {
  std::vector<Result<StoredRows>> slabs(count, StoredRows{});
  const auto make = [&](int i) {
    const int64_t begin = first + i * rows;
    slabs[i] = store_rows(job, reader, begin, std::min(rows, reader.outputs() - begin));
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
  StoredRows sums;
  for (int64_t first = 0; first < reader.outputs(); first += threads * slab_rows) {
    const auto count = static_cast<int>(std::min<int64_t>(threads, ceil_div(reader.outputs() - first, slab_rows)));
    for (Result<StoredRows>& slab : make_slabs(job, reader, first, slab_rows, count)) {
      if (!slab) return failure(std::move(slab), fmt::format("{} ('{}')", job.weight->name, job.tensor.name));
      RETURN_IF_ERROR(out.append(index, {slab->codes, slab->scales, slab->minima}));
      sums.error.add(slab->error);
      sums.nf4.add(slab->nf4);
      sums.raised_scales += slab->raised_scales;
      if (!after_slab(slab->bytes())) return onw::error(Code::cancelled, "stopped; the same command goes on from here");
    }
  }
  return report_of(job, sums, alteration.what);
}

}  // namespace onw
