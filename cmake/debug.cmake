# cmake -C cmake/debug.cmake -B build/debug: no optimisation, our own invariants checked.
set(CMAKE_BUILD_TYPE Debug CACHE STRING "")
set(CMAKE_CXX_FLAGS "-DHALFSTEP_ASSERTIONS=1" CACHE STRING "")
