// SPDX-License-Identifier: MIT
// Everything of mixed/: master weights, loss scaling, gradient accumulation.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/mixed/any_optimizer.hpp>
#include <halfstep/mixed/decision.hpp>
#include <halfstep/mixed/gradient_accumulator.hpp>
#include <halfstep/mixed/gradient_sums.hpp>
#include <halfstep/mixed/histogram.hpp>
#include <halfstep/mixed/loss_scaler.hpp>
#include <halfstep/mixed/lost_updates.hpp>
#include <halfstep/mixed/magnitudes.hpp>
#include <halfstep/mixed/master_weights.hpp>
#include <halfstep/mixed/processes.hpp>
#include <halfstep/mixed/scale_policy.hpp>
#include <halfstep/mixed/state_formats.hpp>
#include <halfstep/mixed/sums.hpp>
#include <halfstep/mixed/underflow.hpp>
#include <halfstep/mixed/unscaled.hpp>
#include <halfstep/mixed/weight_average.hpp>
