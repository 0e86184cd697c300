// Small weights for tests of this room: every part filled with bytes that tell where they belong.
#pragma once

#include <string>
#include <vector>

#include "base/checked.h"
#include "store/folder_writer.h"
#include "store/weight_file_writer.h"

namespace onw {

inline std::vector<std::byte> filled(int64_t bytes, int seed) {
  std::vector<std::byte> out(bytes);
  for (int64_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 31 + seed * 101 + i / 257);
  return out;
}

// Two units of adjacent weights, odd sizes, every kind of part.
inline std::vector<WeightUnit> small_units(Layout layout = Layout::rows) {
  using enum WeightFormat;
  return {{{{"embed", q8c, layout, {37, 64}}}},
          {{{"l.q", q4g32m, layout, {48, 64}}, {"l.k", q4g32m, layout, {16, 64}}, {"l.v", q4g32m, layout, {16, 64}}}},
          {{{"l.norm", f32, Layout::rows, {64}}}},
          {{{"l.up", q4g64, layout, {21, 64}}}},
          {{{"l.odd", f16, layout, {5, 7}}}}};
}

// Writes the units from the writer's next one up to `last`, in pieces of some bytes.
inline Result<void> write_units(WeightFileWriter& writer, const std::vector<WeightUnit>& units, size_t last,
                                int64_t piece = 1000) {
  for (size_t u = writer.next_unit(); u < last; ++u) {
    for (size_t i = 0; i < units[u].weights.size(); ++i) {
      const WeightBytes bytes = units[u].weights[i].bytes();
      const int seed = static_cast<int>(10 * u + i);
      const auto codes = filled(bytes.codes, seed), scales = filled(bytes.scales, seed + 3),
                 minima = filled(bytes.minima, seed + 5);
      for (int64_t at = 0; at < bytes.codes; at += piece)
        RETURN_IF_ERROR(writer.append(
            i, {std::span(codes).subspan(at, std::min(piece, bytes.codes - at)),
                at == 0 ? scales : std::vector<std::byte>(), at == 0 ? minima : std::vector<std::byte>()}));
    }
    RETURN_IF_ERROR(writer.finish_unit("unit " + std::to_string(u)));
  }
  return {};
}

inline std::vector<StoredWeight> all_weights(const std::vector<WeightUnit>& units) {
  std::vector<StoredWeight> all;
  for (const WeightUnit& u : units) all.insert(all.end(), u.weights.begin(), u.weights.end());
  return all;
}

// A finished folder with those weights.
inline Result<void> make_folder(const std::filesystem::path& out, const std::vector<WeightUnit>& units) {
  auto writer = FolderWriter::begin(out, units, "test");
  RETURN_IF_ERROR(writer);
  RETURN_IF_ERROR(write_units(writer->weights(), units, units.size()));
  RETURN_IF_ERROR(writer->write("config.json", "{\"model_type\": \"llama\"}"));
  EngineInfo engine{
      .family = "llama", .layers = 1, .hidden = 64, .vocabulary = 37, .max_context = 128, .made_for = "cpu"};
  engine.runs_on = {"cpu"};
  engine.stop_ids = {2, 7};
  engine.generation.temperature = 0.6;
  engine.provenance = {"org/model", "abc", "onw convert", "2026-01-01T00:00:00Z", "apache-2.0", "0.1.0"};
  return writer->finish(engine);
}

}  // namespace onw
