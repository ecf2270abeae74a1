// SPDX-License-Identifier: MIT
// Everything of optim/: optimizers, schedules, parameter groups.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/optim/adamw.hpp>
#include <halfstep/optim/bytes.hpp>
#include <halfstep/optim/direct.hpp>
#include <halfstep/optim/groups.hpp>
#include <halfstep/optim/lamb.hpp>
#include <halfstep/optim/moments.hpp>
#include <halfstep/optim/optimizer.hpp>
#include <halfstep/optim/sgd.hpp>
#include <halfstep/optim/warmup_cosine.hpp>
