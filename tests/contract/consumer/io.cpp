// SPDX-License-Identifier: MIT
// A stranger's program that reads and writes files: io.hpp comes with halfstep::io.
#include <halfstep/io.hpp>

int main() { return 0; }
