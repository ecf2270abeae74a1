#!/bin/sh
# SPDX-License-Identifier: MIT
# All-reduce of floats by halfstep over shared memory, with buffers in the arena and private ones,
# and, where they are installed, by Open MPI (mpirun, mpicxx) and by Gloo (Debian's PyTorch):
#   sh bench/dist/peers.sh [--ranks N] [--sizes BYTES,BYTES,...] [BUILD]
# BUILD is a build directory with bench_dist_all_reduce. Microseconds of the slowest rank, the least
# of some repetitions, each program after the other; how many times as long the peers take; and what
# part of the in-place ceiling of its own run halfstep reaches. Rank r is bound to CPU r, modulo those
# there are, in every program, and which is printed.
set -eu
ranks=2
sizes=64,256,1024,4096,16384,65536,262144,1048576,4194304,16777216,67108864,268435456
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) ranks=$2 && shift 2 ;;
    --sizes) sizes=$2 && shift 2 ;;
    *) break ;;
  esac
done
ours=${1:-build/gcc}/bench/bench_dist_all_reduce
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for buffers in arena private; do
  "$ours" "$ranks" shm best "$buffers" "$sizes" > "$work/$buffers"
  head -n 1 "$work/$buffers"
done

if command -v mpicxx > /dev/null && command -v mpirun > /dev/null; then
  cat > "$work/peer.cpp" << 'END'
#include <mpi.h>
#include <sched.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  int cpu = 0;
  for (int found = 0; !CPU_ISSET(cpu, &all) || found++ < rank % CPU_COUNT(&all);) ++cpu;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
  std::fprintf(stderr, "Open MPI: rank %d on CPU %d\n", rank, cpu);
  for (int i = 1; i < argc; ++i) {
    const long bytes = std::atol(argv[i]);
    std::vector<float> data(static_cast<std::size_t>(bytes / 4), 0.0F);
    const int inner = bytes <= 65536 ? 50 : 1;
    const long rounds = std::clamp(268435456 / bytes, 8L, 300L);
    double best = 1e9;
    for (long round = 0; round < rounds; ++round) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      for (int i = 0; i < inner; ++i)
        MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      double mine = (MPI_Wtime() - start) / inner, slowest = 0;
      MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      best = std::min(best, slowest);
    }
    if (rank == 0) std::printf("%ld %.2f\n", bytes, best * 1e6);
  }
  MPI_Finalize();
}
END
  mpicxx -O2 "$work/peer.cpp" -o "$work/peer"
  mpirun --version | head -n 1
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --oversubscribe --bind-to none -np "$ranks" "$work/peer" $(echo "$sizes" | tr , " ") > "$work/mpi"
else
  echo "no Open MPI here: apt-get install libopenmpi-dev openmpi-bin"
fi

if /usr/bin/python3 -c 'import torch.distributed' 2> /dev/null; then
  cat > "$work/peer.py" << 'END'
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def run(rank, ranks, sizes, path):
    torch.set_num_threads(1)
    cpus = sorted(os.sched_getaffinity(0))
    cpu = cpus[rank % len(cpus)]
    os.sched_setaffinity(0, {cpu})
    print(f"Gloo: rank {rank} on CPU {cpu}", file=sys.stderr)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=ranks)
    for size in sizes:
        data = torch.zeros(size // 4)
        best = 1e9
        for _ in range(max(5, min(100, 67108864 // size))):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(data, op=dist.ReduceOp.SUM)
            took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            best = min(best, took.item())
        if rank == 0:
            print(f"{size} {best * 1e6:.2f}", flush=True)

if __name__ == "__main__":
    ranks, sizes, path = int(sys.argv[1]), [int(one) for one in sys.argv[2].split(",")], sys.argv[3]
    mp.spawn(run, args=(ranks, sizes, path), nprocs=ranks)
END
  /usr/bin/python3 -c 'import torch; print("PyTorch", torch.__version__)'
  PYTHONPATH="$work" /usr/bin/python3 "$work/peer.py" "$ranks" "$sizes" "$work/meet" > "$work/gloo"
else
  echo "no PyTorch for /usr/bin/python3 here: apt-get install python3-torch"
fi

touch "$work/mpi" "$work/gloo"
echo "all-reduce of floats, $ranks ranks: microseconds; peer's time by ours; membw by the ceiling"
awk -v work="$work" -v sizes="$sizes" '
function read(name, us, line, f) {
  while ((getline line < (work "/" name)) > 0) {
    split(line, f, " ")
    us[f[1]] = f[2]
    if (f[6] > 0) share[name, f[1]] = f[5] / f[6]
  }
}
function ratio(peer, own) { return peer > 0 ? sprintf("%.1f", peer / own) : "-" }
BEGIN {
  read("arena", arena); read("private", heap); read("mpi", mpi); read("gloo", gloo)
  printf "%10s | %10s %10s %10s %10s | %10s %10s | %10s %10s | %7s\n", "bytes", "arena", "private",
    "Open MPI", "Gloo", "MPI:arena", "MPI:priv.", "Gloo:arena", "Gloo:priv.", "ceiling"
  count = split(sizes, size, ",")
  for (i = 1; i <= count; ++i) {
    n = size[i]
    printf "%10d | %10s %10s %10s %10s | %10s %10s | %10s %10s | %7.2f\n", n, arena[n], heap[n],
      n in mpi ? mpi[n] : "-", n in gloo ? gloo[n] : "-", ratio(mpi[n], arena[n]),
      ratio(mpi[n], heap[n]), ratio(gloo[n], arena[n]), ratio(gloo[n], heap[n]), share["arena", n]
  }
}'
