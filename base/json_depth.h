#pragma once

namespace onw {

// JSON from outside that nests deeper is refused before a tree is built: parsers and printers recurse once per level.
inline constexpr int kMaxJsonDepth = 64;

}  // namespace onw
