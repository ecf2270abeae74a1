// SPDX-License-Identifier: MIT
// The files of core/file.hpp under io's name, for users who look for them here. Our own headers
// below io, and train, include core/file.hpp.
#pragma once

#include <halfstep/core/config.hpp>
#include <halfstep/core/file.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::io {

using core::AtomicFile;
using core::DirectoryLock;
using core::InputFile;
using core::move_directory;
using core::read_whole_file;
using core::sync_directory;
using core::write_file_atomically;

}  // namespace halfstep::inline HALFSTEP_CONFIG::io
