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

# halfstep_program(NAME SOURCES...): an executable of ours, warnings as errors, with halfstep::io
# where nlohmann_json is installed.
function(halfstep_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE halfstep::halfstep halfstep_warnings)
  if(TARGET halfstep::io)
    target_link_libraries(${name} PRIVATE halfstep::io)
  endif()
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
