// SPDX-License-Identifier: MIT
// Everything of data/: tokenizers, datasets, batches.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/data/crops.hpp>
#include <halfstep/data/examples.hpp>
#include <halfstep/data/grammar.hpp>
#include <halfstep/data/ngram.hpp>
#include <halfstep/data/shards.hpp>
#include <halfstep/data/text.hpp>
#include <halfstep/data/tokenizer.hpp>
#include <halfstep/data/utf8.hpp>
