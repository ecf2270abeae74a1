// SPDX-License-Identifier: MIT
// Everything of dist/: processes, collectives, sharding.
// For programs; our own headers include what they use.
#pragma once

#include <halfstep/dist/collective/all_reduce.hpp>
#include <halfstep/dist/collective/gather.hpp>
#include <halfstep/dist/collective/group.hpp>
#include <halfstep/dist/parallel/agreement.hpp>
#include <halfstep/dist/parallel/buckets.hpp>
#include <halfstep/dist/parallel/data_parallel.hpp>
#include <halfstep/dist/parallel/frontier.hpp>
#include <halfstep/dist/parallel/one_host.hpp>
#include <halfstep/dist/parallel/sharded_optimizer.hpp>
#include <halfstep/dist/parallel/shards.hpp>
#include <halfstep/dist/parallel/units.hpp>
#include <halfstep/dist/parallel/verify_parallel.hpp>
#include <halfstep/dist/parallel/whole_state.hpp>
#include <halfstep/dist/parallel/zero1.hpp>
#include <halfstep/dist/parallel/zero2.hpp>
#include <halfstep/dist/parallel/zero3.hpp>
#include <halfstep/dist/transport/launch.hpp>
#include <halfstep/dist/transport/segment.hpp>
#include <halfstep/dist/transport/shared_memory.hpp>
#include <halfstep/dist/transport/sockets.hpp>
#include <halfstep/dist/transport/threads.hpp>
#include <halfstep/dist/transport/transport.hpp>
