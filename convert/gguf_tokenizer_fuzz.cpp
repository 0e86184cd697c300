// Any bytes as a GGUF file: its tokenizer becomes files or an error, and so does the whole source.
#include <vector>

#include "base/memory_file.h"
#include "base/output_file.h"
#include "convert/gguf.h"
#include "convert/gguf_tokenizer.h"
#include "convert/model_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto memory = onw::MemoryFile::create();
  if (!memory) return 0;
  auto out = onw::OutputFile::open(memory->path());
  if (!out || !out->write({reinterpret_cast<const std::byte*>(data), size}) || !out->finish()) return 0;
  if (const auto file = onw::GgufFile::open(memory->path()))
    if (const auto tokenizer = onw::read_gguf_tokenizer(*file)) (void)onw::tokenizer_from_gguf(*tokenizer);
  if (const auto source = onw::open_gguf_source(memory->path())) (void)(*source)->stop_ids();
  return 0;
}
