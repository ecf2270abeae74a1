// SPDX-License-Identifier: MIT
// One of several units of one program, each including everything; -DUNIT=name tells them apart. A
// free function without `inline` is defined twice and does not link.
#include <typeinfo>

#include <halfstep/halfstep.hpp>

/// The mangled name of a type of ours: it carries the configuration.
const char* UNIT() { return typeid(halfstep::ShapeError).name(); }
