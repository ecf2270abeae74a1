# SPDX-License-Identifier: MIT
# Every umbrella is what cmake/umbrellas.cmake would write now, so none lacks a header.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
run(${CMAKE_COMMAND} -DCHECK=ON -P ${SOURCE}/cmake/umbrellas.cmake)
message(STATUS "${run_output}")

# And a tree where one is behind is told so.
fresh_directory()
file(COPY ${SOURCE}/include ${SOURCE}/cmake DESTINATION ${OUT})
file(WRITE ${OUT}/include/halfstep/core/newest.hpp "// SPDX-License-Identifier: MIT\n")
try(code text ${CMAKE_COMMAND} -DCHECK=ON -P ${OUT}/cmake/umbrellas.cmake)
if(code STREQUAL "0" OR NOT text MATCHES "core.hpp")
  message(FATAL_ERROR "a header that core.hpp does not include goes unseen:\n${text}")
endif()
