# SPDX-License-Identifier: MIT
# What the scripts of contract tests share: running a compiler, failing with what it said, skipping.
# They are given SOURCE, OUT, EIGEN, GXX, CLANGXX and LAUNCHER (ccache or nothing).
cmake_minimum_required(VERSION 3.24)

set(warnings -Wall -Wextra -Wconversion -Wshadow -Werror)
set(includes -I${SOURCE}/include -isystem ${EIGEN})
separate_arguments(launcher UNIX_COMMAND "${LAUNCHER}")

# skip_or_fail(REASON): as tests/require.hpp. The caller returns after it.
function(skip_or_fail reason)
  if("$ENV{HALFSTEP_REQUIRE_ALL}" STREQUAL "1")
    message(FATAL_ERROR "HALFSTEP_REQUIRE_ALL=1, and this test cannot run: ${reason}")
  endif()
  message(STATUS "halfstep skip: ${reason}")
endfunction()

# compilers(OUT): those of g++ and clang++ that are there. One that is missing is said, and is a
# failure where all are required.
function(compilers out)
  set(found "")
  foreach(path IN ITEMS "${GXX}" "${CLANGXX}")
    if(path AND EXISTS "${path}")
      list(APPEND found "${path}")
    endif()
  endforeach()
  list(LENGTH found count)
  if(count LESS 2 AND "$ENV{HALFSTEP_REQUIRE_ALL}" STREQUAL "1")
    message(FATAL_ERROR "HALFSTEP_REQUIRE_ALL=1, but g++ or clang++ is missing: found '${found}'")
  elseif(count LESS 2)
    message(STATUS "only ${found} is here; the other of g++ and clang++ is not tested")
  endif()
  if(count EQUAL 0)
    message(FATAL_ERROR "neither g++ nor clang++ found")
  endif()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# try(CODE TEXT COMMAND...): exit code, and standard output and error together.
macro(try code text)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE ${code} OUTPUT_VARIABLE ${text}
                  ERROR_VARIABLE ${text})
endmacro()

# run(COMMAND...): fails the test with everything the command printed.
function(run)
  try(code text ${ARGN})
  if(NOT code STREQUAL "0")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nexited with ${code}:\n${text}")
  endif()
  set(run_output "${text}" PARENT_SCOPE)
endfunction()

function(fresh_directory)
  file(REMOVE_RECURSE ${OUT})
  file(MAKE_DIRECTORY ${OUT})
endfunction()
