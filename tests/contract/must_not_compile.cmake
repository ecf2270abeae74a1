# SPDX-License-Identifier: MIT
# FILE compiles with both compilers; with -DCASE=NUMBER it does not, and the compiler says what FILE has
# behind "// CASE NUMBER: ".
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
compilers(all)
fresh_directory()
set(wanted "")
if(DEFINED NUMBER)
  file(STRINGS ${FILE} line REGEX "^// CASE ${NUMBER}: ")
  string(REGEX REPLACE "^// CASE [0-9]+: " "" wanted "${line}")
  string(REPLACE "\\;" ";" wanted "${wanted}")  # file(STRINGS) escapes them
  if(wanted STREQUAL "")
    message(FATAL_ERROR "${FILE} has no text for case ${NUMBER}")
  endif()
endif()
foreach(compiler IN LISTS all)
  set(compile ${compiler} -std=c++20 -Wall -Wextra ${includes} -I${SOURCE}/tests -c ${FILE}
      -o ${OUT}/object.o)
  if(NOT DEFINED NUMBER)
    run(${compile})
    continue()
  endif()
  try(code text ${compile} -DCASE=${NUMBER})
  if(code STREQUAL "0")
    message(FATAL_ERROR "${FILE}, case ${NUMBER}, compiles with ${compiler}")
  endif()
  string(REPLACE "\\\"" "\"" plain "${text}")  # clang escapes quotes
  string(FIND "${plain}" "${wanted}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${FILE}, case ${NUMBER}: ${compiler} does not say '${wanted}' but\n${text}")
  endif()
endforeach()
