#include "convert/mlx_quantisation.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "graph/json.h"

namespace onw {
namespace {

using nlohmann::json;

constexpr std::string_view kWeight = ".weight", kScales = ".scales", kBiases = ".biases";
constexpr std::string_view kRemedy =
    "Take a checkpoint of 2, 4 or 8 bits in groups of 32, 64 or 128, the publisher's BF16 model, or a GGUF file";

// The scales' and biases' types that are read.
std::optional<BlockType> number_type(ElementType type) {
  if (type == ElementType::f16) return BlockType::f16;
  if (type == ElementType::bf16) return BlockType::bf16;
  if (type == ElementType::f32) return BlockType::f32;
  return std::nullopt;
}

BlockType type_of(int64_t bits, int64_t group) {
  if (bits == 8) return BlockType::affine_q8;
  return bits <= 2 && group % 128 == 0 ? BlockType::affine_u2 : BlockType::affine_q4;
}

std::string file_of(const HfCheckpoint::Found& found) { return found.file->file().path().string(); }

}  // namespace

Result<std::optional<MlxQuantisation>> MlxQuantisation::read(const json& config, std::string_view where) {
  const json* said = find_object(config, "quantization");
  if (said == nullptr) {
    said = find_object(config, "quantization_config");
    if (said == nullptr || find_string(*said, "quant_method") || !find_int(*said, "group_size")) return std::nullopt;
  }
  const std::string mode = find_string(*said, "mode").value_or("affine");
  if (mode != "affine")
    return error(Code::unsupported, "{}: quantised by MLX as '{}', 'affine' is read. {}", where, mode, kRemedy);
  MlxQuantisation q;
  q.settings_ = std::make_shared<const json>(*said);
  q.where_ = where;
  q.all_ = {find_int(*said, "bits").value_or(0), find_int(*said, "group_size").value_or(0)};
  if (q.all_.bits < 1 || q.all_.group < 1)
    return error(Code::bad_format, "{}: 'quantization' says neither its 'bits' nor its 'group_size'. Download it again",
                 where);
  return q;
}

Result<MlxQuantisation::Width> MlxQuantisation::width_of(std::string_view module) const {
  Width width = all_;
  constexpr std::string_view kOuter = "language_model.";
  const json* own = find_object(*settings_, std::string(module));
  if (own == nullptr && module.starts_with(kOuter))
    own = find_object(*settings_, std::string(module.substr(kOuter.size())));
  if (own != nullptr) {
    width.bits = find_int(*own, "bits").value_or(width.bits);
    width.group = find_int(*own, "group_size").value_or(width.group);
    if (const std::string mode = find_string(*own, "mode").value_or("affine"); mode != "affine")
      return error(Code::unsupported, "{}: '{}' is quantised as '{}', 'affine' is read. {}", where_, module, mode,
                   kRemedy);
  }
  constexpr std::array<int64_t, 4> kBits = {1, 2, 4, 8};
  if (std::ranges::find(kBits, width.bits) == kBits.end() || width.group < 32 || width.group > 4096 ||
      width.group % 32 != 0)
    return error(Code::unsupported,
                 "{}: '{}' has {} bits in groups of {}; 1, 2, 4 and 8 bits in multiples of 32 are "
                 "read. {}",
                 where_, module, width.bits, width.group, kRemedy);
  return width;
}

Result<SourceTensor> MlxQuantisation::tensor(const HfCheckpoint& checkpoint, const HfCheckpoint::Found& found) const {
  const SafeTensor& codes = *found.tensor;
  constexpr int64_t kMostWords = int64_t{1} << 40;
  if (!codes.name.ends_with(kWeight) || codes.shape.size() < 2 || codes.shape.back() < 1 ||
      codes.shape.back() > kMostWords)
    return error(Code::bad_format, "{}: '{}' is U32 [{}], expected the codes of a matrix. Download the model again",
                 file_of(found), codes.name, fmt::join(codes.shape, ", "));
  const std::string module = codes.name.substr(0, codes.name.size() - kWeight.size());
  const auto width = width_of(module);
  RETURN_IF_ERROR(width);
  const int64_t inputs = codes.shape.back() * (32 / width->bits);
  if (inputs % width->group != 0)
    return error(Code::bad_format,
                 "{}: '{}' has {} inputs of {} bits, no multiple of the group {}. config.json and the weights do not "
                 "belong together: download both again",
                 file_of(found), codes.name, inputs, width->bits, width->group);
  std::vector<int64_t> wanted = codes.shape;
  wanted.back() = inputs / width->group;
  std::array<HfCheckpoint::Found, 2> numbers;
  for (size_t i = 0; i < 2; ++i) {
    const std::string name = module + std::string(i == 0 ? kScales : kBiases);
    numbers[i] = checkpoint.find(name);
    if (numbers[i].file == nullptr)
      return error(Code::missing_tensor, "{}: '{}' holds codes, but there is no '{}'. Is the download complete?",
                   file_of(found), codes.name, name);
    const SafeTensor& t = *numbers[i].tensor;
    if (!number_type(t.type) || t.type != numbers[0].tensor->type || t.shape != wanted)
      return error(Code::bad_format,
                   "{}: '{}' is {} [{}], expected F16, BF16 or F32 [{}], as its scales and biases are. config.json and "
                   "the weights do not belong together: download both again",
                   file_of(numbers[i]), name, onw::name(t.type), fmt::join(t.shape, ", "), fmt::join(wanted, ", "));
  }
  SourceTensor tensor{codes.name,
                      fmt::format("MLX {}-bit", width->bits),
                      found.file->file().path(),
                      type_of(width->bits, width->group),
                      codes.shape,
                      found.file->bytes(codes)};
  tensor.shape.back() = inputs;
  tensor.scales = numbers[0].file->bytes(*numbers[0].tensor);
  tensor.affine = {static_cast<int>(width->bits), width->group, *number_type(numbers[0].tensor->type),
                   numbers[1].file->bytes(*numbers[1].tensor)};
  return tensor;
}

bool belongs_to_codes(const HfCheckpoint& checkpoint, std::string_view name) {
  for (const std::string_view ending : {kScales, kBiases})
    if (name.ends_with(ending)) {
      const auto codes = checkpoint.find(std::string(name.substr(0, name.size() - ending.size())).append(kWeight));
      return codes.file != nullptr && codes.tensor->type == ElementType::u32;
    }
  return false;
}

}  // namespace onw
