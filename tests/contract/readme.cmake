# SPDX-License-Identifier: MIT
# Each C++ block of README (default README.md) is a program: it builds without a warning with both
# compilers, and runs, in an empty directory, to exit code 0. READER is the readme program.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
compilers(all)
fresh_directory()
if(NOT README)
  set(README ${SOURCE}/README.md)
endif()
run(${READER} ${README} ${OUT})
message(STATUS "${run_output}")
file(GLOB blocks ${OUT}/block_*.cpp)
foreach(compiler IN LISTS all)
  foreach(block IN LISTS blocks)
    get_filename_component(name ${block} NAME_WE)
    run(${launcher} ${compiler} -std=c++20 -O2 -Wall -Wextra -Wconversion -Werror ${includes}
        -pthread -c ${block} -o ${OUT}/${name}.o)
    run(${compiler} ${OUT}/${name}.o -pthread -o ${OUT}/${name})
    set(directory ${OUT}/${name}_runs)
    file(REMOVE_RECURSE ${directory})
    file(MAKE_DIRECTORY ${directory})
    execute_process(COMMAND ${OUT}/${name} WORKING_DIRECTORY ${directory} RESULT_VARIABLE code
                    OUTPUT_VARIABLE text ERROR_VARIABLE text TIMEOUT 120)
    if(NOT code STREQUAL "0")
      message(FATAL_ERROR "${name} of ${README}, built with ${compiler}, exited with ${code}:\n${text}")
    endif()
    message(STATUS "${name} with ${compiler}:\n${text}")
  endforeach()
endforeach()
