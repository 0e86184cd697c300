// The C ABI of text/native (src/ffi.rs). Each function that returns int32_t gives 0, or a status with the message in
// `out`.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct OnwBytes {  // back to onw_bytes_free
  uint8_t* data = nullptr;
  size_t size = 0;
};

struct OnwEncoded {  // back to onw_encoded_free
  uint32_t* ids = nullptr;
  size_t* offsets = nullptr;  // two per id
  size_t size = 0;
};

struct OnwTokenizer;
struct OnwStream;
struct OnwTemplate;

enum OnwStatus : int32_t { ONW_OK = 0, ONW_FAILED = 1, ONW_PANICKED = 2, ONW_RAISED = 3 };

void onw_bytes_free(OnwBytes bytes);
void onw_encoded_free(OnwEncoded encoded);

int32_t onw_tokenizer_new(const char* json, size_t size, OnwTokenizer** tokenizer, OnwBytes* out);
void onw_tokenizer_free(OnwTokenizer* tokenizer);
int32_t onw_encode(const OnwTokenizer* tokenizer, const char* text, size_t size, int32_t controls,
                   const size_t* protected_ranges, size_t protected_size, OnwEncoded* encoded, OnwBytes* out);
int32_t onw_decode(const OnwTokenizer* tokenizer, const uint32_t* ids, size_t size, bool skip_special, OnwBytes* out);
int32_t onw_affixes(const OnwTokenizer* tokenizer, OnwEncoded* encoded, OnwBytes* out);
int32_t onw_piece(const OnwTokenizer* tokenizer, uint32_t id, OnwBytes* out);
int32_t onw_token_bytes(const OnwTokenizer* tokenizer, uint32_t id, OnwBytes* out);
int64_t onw_id(const OnwTokenizer* tokenizer, const char* piece, size_t size);
int64_t onw_vocabulary_size(const OnwTokenizer* tokenizer);
int32_t onw_added_tokens(const OnwTokenizer* tokenizer, OnwBytes* out);

OnwStream* onw_stream_new(const OnwTokenizer* tokenizer, bool skip_special);
int32_t onw_stream_push(OnwStream* stream, uint32_t id, OnwBytes* out);
int32_t onw_stream_finish(OnwStream* stream, OnwBytes* out);
void onw_stream_free(OnwStream* stream);

// Writes the time `now` (ISO 8601; empty: this moment) in a format of strftime; gives its length, negative if it is no
// time.
typedef ptrdiff_t (*OnwClock)(const char* now, size_t now_size, const char* format, size_t format_size, char* buffer,
                              size_t capacity);

int32_t onw_template_new(const char* source, size_t size, OnwTemplate** chat_template, OnwBytes* out);
void onw_template_free(OnwTemplate* chat_template);
int32_t onw_render(const OnwTemplate* chat_template, const OnwTokenizer* tracked_for, const char* json, size_t size,
                   const char* special_tokens, size_t special_tokens_size, OnwClock clock, OnwEncoded* ranges,
                   OnwBytes* out);

}  // extern "C"
