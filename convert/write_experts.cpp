#include "convert/write_experts.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "base/checked.h"

namespace onw {
namespace {

constexpr int64_t kSlabValues = 1 << 20;
constexpr int kMaxThreads = 8;
constexpr std::string_view kPattern = "{e}";

std::string of_expert(std::string name, int64_t e) {
  return name.replace(name.find(kPattern), kPattern.size(), std::to_string(e));
}

// Expert e's part of a stack [experts, ...].
SourceTensor slice(const SourceTensor& stack, int64_t e) {
  SourceTensor one = stack;
  one.shape.erase(one.shape.begin());
  const size_t bytes = stack.bytes.size() / static_cast<size_t>(stack.shape.front());
  one.bytes = stack.bytes.subspan(static_cast<size_t>(e) * bytes, bytes);
  const size_t scales = stack.scales.size() / static_cast<size_t>(stack.shape.front());
  one.scales = stack.scales.subspan(static_cast<size_t>(e) * scales, scales);
  const size_t biases = stack.affine.biases.size() / static_cast<size_t>(stack.shape.front());
  one.affine.biases = stack.affine.biases.subspan(static_cast<size_t>(e) * biases, biases);
  return one;
}

Result<void> check_shape(const SourceTensor& t, const std::vector<int64_t>& wanted, const ExpertPart& part) {
  if (t.shape == wanted) return {};
  return error(Code::bad_format,
               "{}: '{}' is [{}], config.json makes it [{}] for '{}'. The files do not belong together: download them "
               "again",
               t.file.string(), t.name, fmt::join(t.shape, ", "), fmt::join(wanted, ", "), part.weight->name);
}

// A tensor an expert, named by `pattern`. Whether there are such tensors.
Result<bool> take_single(const ModelSource& source, const std::string& pattern, ExpertPart& part) {
  const int64_t experts = part.weight->shape[0];
  for (int64_t e = 0; e <= experts; ++e) {
    const std::string name = of_expert(pattern, e);
    auto found = source.find({{name}});
    RETURN_IF_ERROR(found);
    if (e == experts && *found)
      return error(Code::bad_format,
                   "{}: there is '{}', but config.json says {} experts. The files do not belong together: download "
                   "them again",
                   (*found)->file.string(), name, experts);
    if (e == experts) break;
    if (!*found && e == 0) return false;
    if (!*found)
      return error(Code::missing_tensor,
                   "{}: no tensor '{}', though there are those of experts before it, and "
                   "config.json says {}. Is the download complete?",
                   source.path().string(), name, experts);
    RETURN_IF_ERROR(check_shape(**found, part.one.shape, part));
    part.tensors.push_back(std::move(**found));
  }
  part.from.begin = 0;
  part.from.step = 1;
  return true;
}

// The whole stack. Whether there is one.
Result<bool> take_stack(const ModelSource& source, const std::string& name, ExpertPart& part) {
  auto found = source.find({{name}});
  RETURN_IF_ERROR(found);
  if (!*found) return false;
  const SourceTensor& t = **found;
  WeightSource& from = part.from;
  from.transposed = from.transposed && t.type != BlockType::mxfp4 && part.weight->shape.size() == 3;
  std::vector<int64_t> wanted = part.weight->shape;
  const size_t rows = from.transposed ? 2 : 1;
  if (from.transposed) std::swap(wanted[1], wanted[2]);
  if (from.step == 1 && t.shape.size() == wanted.size() && t.shape[rows] == wanted[rows])
    from.begin = 0;  // a stack of its own, where others have gates over ups
  const int64_t last = from.begin + (wanted[rows] - 1) * from.step;  // of our rows
  if (t.shape.size() == wanted.size() && t.shape[rows] > last) wanted[rows] = t.shape[rows];
  RETURN_IF_ERROR(check_shape(t, wanted, part));
  for (int64_t e = 0; e < wanted[0]; ++e) part.tensors.push_back(slice(t, e));
  return true;
}

Result<void> take_tensors(const ModelSource& source, ExpertPart& part) {
  for (const std::string& name : part.from.names) {
    const auto taken =
        name.find(kPattern) != name.npos ? take_single(source, name, part) : take_stack(source, name, part);
    RETURN_IF_ERROR(taken);
    if (*taken) return {};
  }
  return error(Code::missing_tensor, "{}: no tensors for '{}'; looked for {}. Is the download complete?",
               source.path().string(), part.weight->name, fmt::join(part.from.names, ", "));
}

Result<void> check_one_type(const ExpertPart& part) {
  const SourceTensor& first = part.tensors.front();
  for (const SourceTensor& t : part.tensors)
    if (t.type != first.type)
      return error(Code::bad_format,
                   "{}: '{}' is {}, '{}' is {}: the experts of a layer must have one type. Take another file",
                   t.file.string(), t.name, t.type_name, first.name, first.type_name);
  return {};
}

Result<ExpertPart> plan_part(const WeightDecl& weight, const ModelSource& source, const FormatRequest& request) {
  ExpertPart part{.weight = &weight, .one = weight, .from = source.source_of(weight)};
  part.one.shape.erase(part.one.shape.begin());
  RETURN_IF_ERROR(take_tensors(source, part));
  RETURN_IF_ERROR(check_one_type(part));
  const BlockType type = part.tensors.front().type;
  part.choice = choose_format(weight, type, source.is_quantised() || type == BlockType::mxfp4, request);
  return part;
}

// Rows of a stack of which nobody takes any mean that config.json is of another model; so do gates and ups of two
// formats, whose products have the same rows.
Result<void> check_job(const ExpertJob& job) {
  std::map<std::string, int64_t> taken;
  for (const ExpertPart& p : job.parts) {
    int64_t& most = taken[p.tensors.front().name];
    most = std::max(most, p.from.begin + (p.one.shape[0] - 1) * p.from.step + 1);
  }
  for (const ExpertPart& p : job.parts)
    if (const SourceTensor& t = p.tensors.front(); taken[t.name] != t.shape[p.from.transposed ? 1 : 0])
      return error(Code::bad_format,
                   "{}: '{}' has {} rows for each expert, config.json makes it {}. The files do not belong together: "
                   "download them again",
                   t.file.string(), t.name, t.shape[p.from.transposed ? 1 : 0], taken[t.name]);
  const auto same_rows = [](const ExpertPart& a, const ExpertPart& b) {
    return a.tensors.front().name == b.tensors.front().name && a.from.begin == b.from.begin;
  };
  for (size_t i = 1; i < job.parts.size(); ++i)
    if (const ExpertPart& p = job.parts[i]; same_rows(p, job.parts[i - 1]))
      return error(Code::bad_format,
                   "{}: '{}' has {} rows for each expert, config.json makes it {}. The files do not belong together: "
                   "download them again",
                   p.tensors.front().file.string(), p.tensors.front().name, p.one.shape[0], 2 * p.one.shape[0]);
  const ExpertPart* first = nullptr;
  for (const ExpertPart& p : job.parts) {
    if (!p.weight->name.ends_with(".gate") && !p.weight->name.ends_with(".up")) continue;
    if (first == nullptr) first = &p;
    if (p.choice.format != first->choice.format)
      return error(Code::unsupported,
                   "{}: '{}' is {} and '{}' is {}: gate and up of an expert need one format. Take --format q4g128",
                   p.tensors.front().file.string(), first->tensors.front().name, first->tensors.front().type_name,
                   p.tensors.front().name, p.tensors.front().type_name);
  }
  return {};
}

struct Record {
  std::vector<std::byte> bytes;
  std::vector<StoredRows> sums;  // by part, without their bytes
};

void put(std::vector<std::byte>& record, int64_t& at, const std::vector<std::byte>& bytes) {
  if (!bytes.empty()) std::memcpy(record.data() + at, bytes.data(), bytes.size());
  at += static_cast<int64_t>(bytes.size());
}

Result<Record> make_record(const ExpertJob& job, int64_t expert) {
  Record record{std::vector<std::byte>(static_cast<size_t>(job.records.record_bytes())), {}};
  const auto offsets = job.records.offsets();
  for (size_t i = 0; i < job.parts.size(); ++i) {
    const ExpertPart& part = job.parts[i];
    const WeightJob one{&part.one, part.tensors[static_cast<size_t>(expert)], &part.from, part.choice};
    const RowReader reader(one.tensor, part.one, part.from, part.altered.exponents);
    const int64_t step = std::max<int64_t>(16, kSlabValues / reader.inputs() / 16 * 16);
    PartOffsets at = offsets[i];
    StoredRows sums;
    for (int64_t first = 0; first < reader.outputs(); first += step) {
      auto rows = store_rows(one, reader, first, std::min(step, reader.outputs() - first));
      if (!rows) return failure(std::move(rows), fmt::format("{} of expert {}", part.weight->name, expert));
      put(record.bytes, at.codes, rows->codes);
      put(record.bytes, at.scales, rows->scales);
      put(record.bytes, at.minima, rows->minima);
      sums.error.add(rows->error);
      sums.nf4.add(rows->nf4);
      sums.raised_scales += rows->raised_scales;
    }
    record.sums.push_back(std::move(sums));
  }
  return record;
}

// Records of experts [first, first + count), on as many threads.
std::vector<Result<Record>> make_records(const ExpertJob& job, int64_t first, int64_t count) {
  std::vector<Result<Record>> records(static_cast<size_t>(count), Record());
  const auto make = [&](int64_t i) { records[static_cast<size_t>(i)] = make_record(job, first + i); };
  std::vector<std::jthread> threads;
  for (int64_t i = 1; i < count; ++i) threads.emplace_back(make, i);
  make(0);
  return records;
}

}  // namespace

Result<std::vector<ExpertJob>> plan_experts(const Program& program, const ModelSource& source,
                                            const FormatRequest& request) {
  std::vector<ExpertJob> jobs;
  for (const WeightDecl& w : program.weights) {
    if (w.role != WeightRole::expert) continue;
    if (jobs.empty() || jobs.back().records.name != w.group)
      jobs.push_back({{.name = w.group, .experts = w.shape[0]}, {}});
    auto part = plan_part(w, source, request);
    RETURN_IF_ERROR(part);
    jobs.back().records.parts.push_back({w.name, part->choice.format, part->choice.layout, part->one.shape});
    jobs.back().parts.push_back(std::move(*part));
  }
  for (const ExpertJob& job : jobs) RETURN_IF_ERROR(check_job(job));
  return jobs;
}

Result<std::vector<TensorReport>> write_experts(const ExpertJob& job, WeightFileWriter& out,
                                                const std::function<bool(int64_t)>& after_record) {
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, kMaxThreads);
  std::vector<StoredRows> sums(job.parts.size());
  for (int64_t first = 0; first < job.records.experts; first += threads)
    for (Result<Record>& record : make_records(job, first, std::min(threads, job.records.experts - first))) {
      RETURN_IF_ERROR(record);
      RETURN_IF_ERROR(out.append(0, {.codes = record->bytes}));
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i].error.add(record->sums[i].error);
        sums[i].nf4.add(record->sums[i].nf4);
        sums[i].raised_scales += record->sums[i].raised_scales;
      }
      if (!after_record(job.records.record_bytes()))
        return error(Code::cancelled, "stopped; the same command goes on from here");
    }
  std::vector<TensorReport> reports;
  for (size_t i = 0; i < sums.size(); ++i) {
    const ExpertPart& part = job.parts[i];
    reports.push_back(
        report_of({part.weight, part.tensors.front(), &part.from, part.choice}, sums[i], part.altered.what));
  }
  return reports;
}

}  // namespace onw
