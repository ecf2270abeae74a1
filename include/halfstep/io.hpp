// SPDX-License-Identifier: MIT
// Everything of io/: safetensors and checkpoint directories.
// Needs nlohmann_json: target halfstep::io.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/io/byte_hash.hpp>
#include <halfstep/io/checkpoint.hpp>
#include <halfstep/io/file.hpp>
#include <halfstep/io/manifest.hpp>
#include <halfstep/io/run.hpp>
#include <halfstep/io/safetensors.hpp>
