// The tables that kernels.inc names, and what they share.
#pragma once

#include "kernels/attention/attention.h"

namespace onw {

#define KERNEL(name, needs) extern const AttentionOps name;
#include "kernels/attention/kernels.inc"
#undef KERNEL

// What a task keeps for its rows, laid out in its scratch; every array starts at a multiple of 64 bytes.
struct AttentionScratch {
  int8_t* codes = nullptr;    // INT8: [rows][padded], zero behind head_dim
  float* factor = nullptr;    // [rows] Query::factor
  int32_t* offset = nullptr;  // INT8: [rows] -128 * sum of the codes
  float* m = nullptr;         // [rows] running
  float* l = nullptr;         // [rows]
  float* o = nullptr;         // [rows][padded]
  float* scores = nullptr;    // [kTileRows][256], then weights
  uint8_t* bytes = nullptr;   // INT8: [kTileRows][2][256] low and high bytes of the weights' codes
  float* scales = nullptr;    // INT8: [2][256] of the page, K then V
  float* block_o = nullptr;   // [kTileRows][padded]
  int8_t* packed = nullptr;   // INT8: [kTileRows][padded] codes of a tile's queries, for units that need them adjacent
  float* block_m = nullptr;   // [kTileRows]
  float* block_l = nullptr;   // [kTileRows]
};
constexpr int kTileRows = 32;  // the most rows that share one pass over a page
AttentionScratch place_attention_scratch(const AttentionForm& form, int64_t rows, std::byte* memory, size_t* bytes);

// Floats of one row and block in the results of attend_blocks: m, l, then o at kResultHeader.
constexpr int64_t kResultHeader = 16;
constexpr int64_t result_stride(const KvLayout& layout) { return kResultHeader + layout.padded(); }

// The scalar ops, for forms that an instruction set has no kernel of its own for (F32).
void kv_write_generic(const KvLayout& layout, std::byte* page, int64_t position, const float* k, const float* v);
void attend_generic(const AttentionTask& task, std::byte* scratch);
void attend_blocks_generic(const AttentionTask& task, PageRange all, PageRange range, float* results,
                           std::byte* scratch);
void fold_blocks_generic(const AttentionTask& task, PageRange all, const float* results, std::byte* scratch);

}  // namespace onw
