# SPDX-License-Identifier: MIT
# What is wrong with a README is seen: each text below, given to contract.readme's script, must pass
# or fail with the words beside it.
include(${CMAKE_CURRENT_LIST_DIR}/run.cmake)
fresh_directory()
set(wrong 0)
function(readme name wanted text)
  file(WRITE ${OUT}/${name}.md "${text}")
  try(code output ${CMAKE_COMMAND} -DSOURCE=${SOURCE} -DOUT=${OUT}/${name} -DEIGEN=${EIGEN}
      -DGXX=${GXX} -DCLANGXX=${CLANGXX} -DREADER=${READER} -DREADME=${OUT}/${name}.md
      -P ${CMAKE_CURRENT_LIST_DIR}/readme.cmake)
  # A block that passes prints; one that fails says why; CMake wraps lines, so blanks may be ends.
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(wanted MATCHES "^passes: (.*)")
    set(wanted "${CMAKE_MATCH_1}")
    if(NOT code STREQUAL "0" OR NOT output MATCHES "${wanted}")
      message(SEND_ERROR "${name}: should pass and say '${wanted}':\n${output}")
    endif()
  elseif(code STREQUAL "0" OR NOT output MATCHES "${wanted}")
    message(SEND_ERROR "${name}: should fail with '${wanted}':\n${output}")
  endif()
endfunction()

set(program "#include <cstdio>\nint main() { std::puts(\"it ran\"); }\n")
readme(good "passes: 1 C[+][+] blocks.*it ran" "# x\n\n```cpp\n${program}```\n\n```sh\nls\n```\n")
readme(backticks "passes: it ran" "```cpp\n// a `name` and ```three``` here\n${program}```\n")
readme(longer_fence "passes: it ran" "````cpp\n/*\n```\n*/\n${program}````\n")
readme(tildes "passes: it ran" "~~~ c++\n${program}~~~\n")
readme(semicolons "passes: it ran" [[
```cpp
#include <cstdio>
int a[3], b = 0;;
int main() { for (;;) { std::puts("it ran"); return a[b]; } }
```
]])
readme(indented "passes: it ran" "1. first\n\n   ```cpp\n${program}   ```\n")
readme(two "passes: 2 C[+][+] blocks" "```cpp\n${program}```\n```cpp\n${program}```\n")
readme(no_block "holds no C[+][+] block" "# x\n\n```sh\nls\n```\n")
readme(empty_file "holds no C[+][+] block" "\n")
readme(empty_block "block is empty" "```cpp\n\n```\n")
readme(unclosed "never closed" "```cpp\n${program}")
readme(closed_too_short "never closed" "````cpp\n${program}```\n")
readme(unclosed_other "never closed" "```cpp\n${program}```\n\n```sh\nls\n")
readme(does_not_compile "exited with 1" "```cpp\nint main() { return missing; }\n```\n")
readme(second_is_broken "exited with 1" "```cpp\n${program}```\n```cpp\nint main() { oops }\n```\n")
readme(warns "Wconversion|Wfloat-conversion" "```cpp\nint main(int n, char**) { float f = 1.0F; int i = n * f; return i - i; }\n```\n")
readme(fails_when_run "exited with 3" "```cpp\nint main() { return 3; }\n```\n")
readme(no_main "undefined reference" "```cpp\ninline int f() { return 1; }\n```\n")
