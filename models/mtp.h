// The layer that predicts one token further than its model ("multi-token prediction": Gloeckle et al. 2024; DeepSeek-V3
// 2.2). It reads the model's last hidden state beside the embedding of the token that was drawn from it, and gives the
// hidden state from which the token after that one is guessed. It is a Program of its own over the model's folder:
//
//   u = fc [norm(embed(token t+1)), norm(hidden t)]     hidden t: the body's "hidden", after the last norm
//   hidden' = norm(decoder layer(u))                     its own K and V
//   logits of token t+2 = head(hidden')                  the model's head; hidden' goes on as hidden t+1
//
// Beside "head", a function "short_head" knows the first tokens of the vocabulary only: merges come in the order of
// their frequency, so those are the common ones, and a guess costs little more than the layer.
#pragma once

#include "models/decoder.h"

namespace onw {

// The weight behind "short_head": the first rows of "head", or of "embed" where the two are tied. No folder holds it.
inline constexpr std::string_view kShortHead = "head.short";
// Its rows, for vocabularies at least twice as large.
inline constexpr int64_t kShortVocabulary = 32768;

// `block` is the family's decoder block, which is called for a layer of full attention behind the model's own: weights
// are named so ("layers.32.attn.q" for a model of 32), as GGUF files do; Hugging Face calls them "mtp.layers.0.…".
// `short_vocabulary`: 0 for none, else a multiple of 16 below the vocabulary.
Result<Program> mtp_program(DecoderConfig config, BlockFunction block, int64_t short_vocabulary);

}  // namespace onw
