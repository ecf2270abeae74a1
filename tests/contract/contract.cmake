# SPDX-License-Identifier: MIT
# The tests that compile, link and install: what the house promises beyond behaviour. Each is a
# script beside this file, or a program of standard C++ that reads the tree.
add_executable(contract_house ${contract}/house.cpp)
add_executable(contract_house_catches ${contract}/house_catches.cpp)
add_executable(contract_readme ${contract}/readme.cpp)
foreach(program contract_house contract_house_catches contract_readme)
  target_compile_features(${program} PRIVATE cxx_std_20)
  target_link_libraries(${program} PRIVATE halfstep_warnings)
endforeach()
add_test(NAME contract.house COMMAND contract_house ${PROJECT_SOURCE_DIR})
add_test(NAME contract.house_catches
         COMMAND contract_house_catches ${CMAKE_CURRENT_BINARY_DIR}/house_catches_tree)
set_tests_properties(contract.house contract.house_catches PROPERTIES LABELS contract TIMEOUT 120)

halfstep_script_test(contract.umbrellas umbrellas)
halfstep_script_test(contract.link link)
halfstep_script_test(contract.fast_math fast_math)
halfstep_script_test(contract.readme readme -DREADER=$<TARGET_FILE:contract_readme>)
halfstep_script_test(contract.readme_catches readme_catches
                     -DREADER=$<TARGET_FILE:contract_readme>)
foreach(way find_package add_subdirectory fetch_content pkg_config plain)
  halfstep_script_test(contract.consumer.${way} consumer -DWAY=${way}
                       "-DGENERATOR=${CMAKE_GENERATOR}" "-DMAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}")
endforeach()

file(GLOB folders RELATIVE ${PROJECT_SOURCE_DIR}/include/halfstep CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/include/halfstep/*)
# Both compilers on 140 headers are seven minutes of processor time. A header that lacks an include
# lacks it for g++ too, and clang reads the umbrellas here and each header alone in the nightly run.
halfstep_script_test(contract.headers.umbrellas headers -DFOLDER=.)
foreach(folder IN LISTS folders)
  if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/include/halfstep/${folder})
    halfstep_script_test(contract.headers.${folder} headers -DFOLDER=${folder} -DONLY=GXX)
    halfstep_script_test(nightly.headers_clang.${folder} headers -DFOLDER=${folder} -DONLY=CLANGXX)
    set_tests_properties(nightly.headers_clang.${folder} PROPERTIES LABELS nightly)
  endif()
endforeach()

file(GLOB_RECURSE sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *_fail.cpp)
foreach(source IN LISTS sources)
  set(file ${CMAKE_CURRENT_SOURCE_DIR}/${source})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  string(REGEX REPLACE "/([^/]*)_fail\\.cpp$" ".\\1" name ${source})
  file(STRINGS ${file} cases REGEX "^// CASE [0-9]+: ")
  if(NOT cases)
    message(FATAL_ERROR "${source} has no line '// CASE 1: text of the error'")
  endif()
  halfstep_script_test(${name}/must_not_compile.whole must_not_compile -DFILE=${file})
  foreach(case IN LISTS cases)
    string(REGEX MATCH "[0-9]+" number "${case}")
    halfstep_script_test(${name}/must_not_compile.${number} must_not_compile
      -DFILE=${file} -DNUMBER=${number})
  endforeach()
endforeach()

file(GLOB_RECURSE sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *_probe.cpp)
foreach(source IN LISTS sources)
  string(REGEX REPLACE "/([^/]*)_probe\\.cpp$" ".\\1" name ${source})
  halfstep_script_test(${name}/same_bits same_bits -DFILE=${CMAKE_CURRENT_SOURCE_DIR}/${source})
endforeach()

# A fresh Debian takes a network and half an hour.
add_test(NAME nightly.bare_debian COMMAND sh ${contract}/bare_debian.sh ${PROJECT_SOURCE_DIR})
set_tests_properties(nightly.bare_debian PROPERTIES LABELS nightly TIMEOUT 14400 RUN_SERIAL TRUE
                     SKIP_REGULAR_EXPRESSION "halfstep skip")
