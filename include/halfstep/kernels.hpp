// SPDX-License-Identifier: MIT
// Everything of kernels/: the passes over arrays that training consists of.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/kernels/accumulate.hpp>
#include <halfstep/kernels/adamw.hpp>
#include <halfstep/kernels/attention.hpp>
#include <halfstep/kernels/cross_entropy.hpp>
#include <halfstep/kernels/dropout.hpp>
#include <halfstep/kernels/elementwise.hpp>
#include <halfstep/kernels/embedding.hpp>
#include <halfstep/kernels/fold.hpp>
#include <halfstep/kernels/gelu.hpp>
#include <halfstep/kernels/gemm.hpp>
#include <halfstep/kernels/gradient_pass.hpp>
#include <halfstep/kernels/head_loss.hpp>
#include <halfstep/kernels/held.hpp>
#include <halfstep/kernels/layer_norm.hpp>
#include <halfstep/kernels/linear.hpp>
#include <halfstep/kernels/pack.hpp>
#include <halfstep/kernels/reduce.hpp>
#include <halfstep/kernels/rms_norm.hpp>
#include <halfstep/kernels/sgd.hpp>
#include <halfstep/kernels/squared_error.hpp>
#include <halfstep/kernels/stochastic_round.hpp>
#include <halfstep/kernels/write.hpp>
