// The version, as CMakeLists.txt and the changelog have it.
#pragma once

namespace onw {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace onw
