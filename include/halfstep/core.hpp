// SPDX-License-Identifier: MIT
// Everything of core/: errors, threads, random numbers, memory and what a run is made of.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/core/aligned.hpp>
#include <halfstep/core/assert.hpp>
#include <halfstep/core/available_memory.hpp>
#include <halfstep/core/compute.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/contraction.hpp>
#include <halfstep/core/counters.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/file.hpp>
#include <halfstep/core/float_environment.hpp>
#include <halfstep/core/fma.hpp>
#include <halfstep/core/isa.hpp>
#include <halfstep/core/ledger.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/pool.hpp>
#include <halfstep/core/random.hpp>
#include <halfstep/core/resident_memory.hpp>
#include <halfstep/core/runtime.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/core/target.hpp>
#include <halfstep/core/threads.hpp>
#include <halfstep/core/views.hpp>
