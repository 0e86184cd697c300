// "Did you mean ...?" for words that are not known.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace onw::cli {

// How many letters to put in, leave out, change or swap with their neighbour until `a` is `b` (Damerau and
// Levenshtein's distance, no letter touched twice).
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate that `word` most likely stands for: the only one that it begins, else the nearest, within a third of
// its letters. Empty where none is near.
std::string_view suggestion(std::string_view word, std::span<const std::string_view> candidates);

// " Did you mean NAME?", or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace onw::cli
