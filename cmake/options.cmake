# Language level, warnings, sanitisers, ccache and linker: everything that holds for every room.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(ONW_SANITIZE "" CACHE STRING "Sanitisers, as for -fsanitize=: address,undefined or thread")
option(ONW_FUZZ "Build the libFuzzer targets (needs clang)" OFF)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")

# Equal bits on every machine: no contraction of a*b+c, no relaxed maths, anywhere.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(WARNING "GCC spills in wide kernels: expect half the speed. Install clang 19 (./start.sh does).")
endif()

if(ONW_SANITIZE)
  add_compile_options(-fsanitize=${ONW_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ONW_SANITIZE})
endif()
if(ONW_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(ONW_CCACHE ccache)
if(ONW_CCACHE)
  # Paths count from the clone, so that a second clone takes the objects of the first.
  set(ONW_CCACHE ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${ONW_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ONW_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${ONW_CCACHE})
endif()
find_program(ONW_LLD NAMES ld.lld-19 ld.lld)
if(ONW_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_link_options(-fuse-ld=lld)
endif()

include_directories(${CMAKE_SOURCE_DIR})
enable_testing()
