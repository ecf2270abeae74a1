// SPDX-License-Identifier: MIT
// Everything of train/: the training loop, evaluation, metrics.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/train/early_stopping.hpp>
#include <halfstep/train/evaluate.hpp>
#include <halfstep/train/fit.hpp>
#include <halfstep/train/fit_state.hpp>
#include <halfstep/train/metrics.hpp>
#include <halfstep/train/progress.hpp>
#include <halfstep/train/sample.hpp>
#include <halfstep/train/shadow.hpp>
#include <halfstep/train/step_info.hpp>
#include <halfstep/train/telemetry.hpp>
