// SPDX-License-Identifier: MIT
// Everything that needs Eigen alone, in one process. Not in it: io.hpp, which needs nlohmann_json
// (halfstep::io), and dist.hpp, for several processes. For programs; our own headers include what
// they use.
#pragma once

#include <halfstep/autograd.hpp>
#include <halfstep/core.hpp>
#include <halfstep/data.hpp>
#include <halfstep/kernels.hpp>
#include <halfstep/mixed.hpp>
#include <halfstep/nn.hpp>
#include <halfstep/numeric.hpp>
#include <halfstep/numeric/eigen.hpp>
#include <halfstep/optim.hpp>
#include <halfstep/tensor.hpp>
#include <halfstep/train.hpp>
