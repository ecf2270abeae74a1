// SPDX-License-Identifier: MIT
// Everything of autograd/: the tape, its ops, recompute segments, gradient checks.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/autograd/chain_plans.hpp>
#include <halfstep/autograd/checkpoint.hpp>
#include <halfstep/autograd/dual_op.hpp>
#include <halfstep/autograd/gradient_check.hpp>
#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/graph.hpp>
#include <halfstep/autograd/held_parameters.hpp>
#include <halfstep/autograd/hessian.hpp>
#include <halfstep/autograd/hessian_check.hpp>
#include <halfstep/autograd/keep.hpp>
#include <halfstep/autograd/memory_report.hpp>
#include <halfstep/autograd/op.hpp>
#include <halfstep/autograd/ops/add.hpp>
#include <halfstep/autograd/ops/add_losses.hpp>
#include <halfstep/autograd/ops/attention.hpp>
#include <halfstep/autograd/ops/cast.hpp>
#include <halfstep/autograd/ops/constant.hpp>
#include <halfstep/autograd/ops/cross_entropy.hpp>
#include <halfstep/autograd/ops/dropout.hpp>
#include <halfstep/autograd/ops/embedding.hpp>
#include <halfstep/autograd/ops/gelu.hpp>
#include <halfstep/autograd/ops/head_loss.hpp>
#include <halfstep/autograd/ops/layer_norm.hpp>
#include <halfstep/autograd/ops/linear.hpp>
#include <halfstep/autograd/ops/multiply.hpp>
#include <halfstep/autograd/ops/rms_norm.hpp>
#include <halfstep/autograd/ops/squared_error.hpp>
#include <halfstep/autograd/ops/use.hpp>
#include <halfstep/autograd/plan_recompute.hpp>
#include <halfstep/autograd/record.hpp>
#include <halfstep/autograd/remake.hpp>
#include <halfstep/autograd/replay.hpp>
#include <halfstep/autograd/run_chain.hpp>
#include <halfstep/autograd/schedule.hpp>
#include <halfstep/autograd/segment.hpp>
#include <halfstep/autograd/sweep.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
