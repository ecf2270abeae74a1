# SPDX-License-Identifier: MIT
# How we build our own programs: tests, benches and examples. Nothing here reaches a user.

add_library(halfstep_warnings INTERFACE)
target_compile_options(halfstep_warnings INTERFACE
  -Wall -Wextra -Wconversion -Wshadow -Werror)

# Set by cmake/asan.cmake and cmake/tsan.cmake: "address,undefined" or "thread".
set(HALFSTEP_SANITIZE "" CACHE STRING "What to give to -fsanitize= for our own programs")
if(HALFSTEP_SANITIZE)
  target_compile_options(halfstep_warnings INTERFACE
    -fsanitize=${HALFSTEP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(halfstep_warnings INTERFACE -fsanitize=${HALFSTEP_SANITIZE})
endif()

# The kernels of every element type, compiled once for all programs, and the headers that most of them
# begin with, parsed once. What a user does, instantiating all of it in one unit, is what the contract
# tests and the probes do.
file(GLOB kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/compiled/kernels_*.cpp)
add_library(halfstep_kernels STATIC ${kernel_sources})
target_link_libraries(halfstep_kernels PRIVATE halfstep::halfstep halfstep_warnings)

# halfstep_prefix(NAME HEADERS...): the headers that programs with HALFSTEP_PREFIX set to NAME begin with.
function(halfstep_prefix name)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp "// Nothing: the target exists for its headers.\n")
  add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE halfstep::halfstep halfstep_warnings)
  if(TARGET halfstep::io)
    target_link_libraries(${name} PRIVATE halfstep::io)
  endif()
  target_precompile_headers(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cmake/compiled/kernels.hpp ${ARGN})
endfunction()
halfstep_prefix(halfstep_program_prefix)
set(HALFSTEP_PREFIX halfstep_program_prefix)

# halfstep_compiled(NAME): with the compiled kernels and the headers of HALFSTEP_PREFIX.
function(halfstep_compiled name)
  target_link_libraries(${name} PRIVATE halfstep_kernels)
  target_precompile_headers(${name} REUSE_FROM ${HALFSTEP_PREFIX})
  # g++ forgets the kernels' own diagnostic pragmas in a precompiled header, and warns of its own
  # intrinsics then. The contract tests compile the same headers plainly, with every warning.
  target_compile_options(${name} PRIVATE
    $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>)
endfunction()

# halfstep_program(NAME SOURCES...): an executable of ours, warnings as errors, with halfstep::io
# where nlohmann_json is installed, and with the compiled kernels if a source can reach a kernel.
function(halfstep_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE halfstep::halfstep halfstep_warnings)
  if(TARGET halfstep::io)
    target_link_libraries(${name} PRIVATE halfstep::io)
  endif()
  foreach(source IN LISTS ARGN)
    file(STRINGS ${source} lines LIMIT_COUNT 1
      REGEX "#include (<halfstep/(halfstep\\.hpp|dist\\.hpp|dist/collective|dist/parallel|autograd|kernels|mixed|nn|optim|train)|\"capstone/|\"model|\"commands)")
    if(lines)
      halfstep_compiled(${name})
      return()
    endif()
  endforeach()
endfunction()

# halfstep_links(NAME FILES...): links the libraries that a file asks for by a line
# "// links: quadmath mpfr". Oracles use it; the library itself needs none.
function(halfstep_links name)
  foreach(file IN LISTS ARGN)
    file(STRINGS ${file} lines REGEX "^// links: ")
    foreach(line IN LISTS lines)
      string(REPLACE "// links: " "" libraries "${line}")
      separate_arguments(libraries)
      target_link_libraries(${name} PRIVATE ${libraries})
    endforeach()
  endforeach()
endfunction()
