// SPDX-License-Identifier: MIT
// Everything of nn/: layers and the GPT.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/nn/block.hpp>
#include <halfstep/nn/causal_attention.hpp>
#include <halfstep/nn/embedding.hpp>
#include <halfstep/nn/gpt.hpp>
#include <halfstep/nn/gpt_cache.hpp>
#include <halfstep/nn/layer_norm.hpp>
#include <halfstep/nn/linear.hpp>
#include <halfstep/nn/segmented_gpt.hpp>
