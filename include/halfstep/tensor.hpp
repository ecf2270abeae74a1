// SPDX-License-Identifier: MIT
// Everything of tensor/: shapes, accounted memory, parameters and their store.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/tensor/arena.hpp>
#include <halfstep/tensor/hash.hpp>
#include <halfstep/tensor/memory.hpp>
#include <halfstep/tensor/parameter_table.hpp>
#include <halfstep/tensor/parameters.hpp>
#include <halfstep/tensor/placement.hpp>
#include <halfstep/tensor/shape.hpp>
#include <halfstep/tensor/sink.hpp>
#include <halfstep/tensor/state.hpp>
#include <halfstep/tensor/store.hpp>
