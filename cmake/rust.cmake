# onw_rust(TARGET FOLDER): the Rust static library of a folder as an imported target.
#
# Cargo keeps its objects in one folder for all presets: the crates do not depend on ours, so a sanitiser build need not
# compile them again. Rust code is never instrumented; it gets and gives plain bytes.
find_program(ONW_CARGO cargo PATHS $ENV{CARGO_HOME}/bin $ENV{HOME}/.cargo/bin)
if(NOT ONW_CARGO)
  message(FATAL_ERROR "cargo is missing. Install Rust 1.87 or newer (./start.sh says how), or set ONW_CARGO to its path.")
endif()
set(ONW_CARGO_TARGET_DIR ${CMAKE_SOURCE_DIR}/build/cargo CACHE PATH "Where cargo keeps its objects, shared by all presets")

function(onw_rust target folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/src/*.rs)
  set(archive ${CMAKE_BINARY_DIR}/lib${target}.a)
  add_custom_command(
    OUTPUT ${archive}
    COMMAND ${CMAKE_COMMAND} -E env CC=${CMAKE_C_COMPILER} CARGO_TARGET_DIR=${ONW_CARGO_TARGET_DIR}
            ${ONW_CARGO} build --release --locked --quiet --manifest-path ${CMAKE_SOURCE_DIR}/${folder}/Cargo.toml
    COMMAND ${CMAKE_COMMAND} -E copy ${ONW_CARGO_TARGET_DIR}/release/lib${target}.a ${archive}
    DEPENDS ${sources} ${CMAKE_SOURCE_DIR}/${folder}/Cargo.toml ${CMAKE_SOURCE_DIR}/${folder}/Cargo.lock
    COMMENT "Rust: ${folder}"
    VERBATIM)
  add_custom_target(${target}_build DEPENDS ${archive})
  add_library(${target} STATIC IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${archive})
  target_link_libraries(${target} INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
  add_dependencies(${target} ${target}_build)
endfunction()
