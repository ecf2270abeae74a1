// SPDX-License-Identifier: MIT
// Everything of mixed/: master weights, loss scaling, gradient accumulation.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/gradient_sums.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/underflow.hpp>
#include <halfstep/mixed/unscaled.hpp>
#include <halfstep/mixed/weight_average.hpp>
