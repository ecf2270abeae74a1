#!/bin/sh
# SPDX-License-Identifier: MIT
# The same all-reduce by Open MPI (mpirun, mpicxx) and by Gloo (Debian's PyTorch), where they are
# installed: sh bench/dist/peers.sh [RANKS] [LARGEST BYTES]. Microseconds of the slowest rank, the
# least of some repetitions, as bench_dist_all_reduce prints them; run both in one go. With no more
# ranks than CPUs, each is pinned to one of its own, and which is printed.
set -eu
ranks=${1:-2}
largest=${2:-67108864}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

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
  if (size <= CPU_COUNT(&all)) {
    int cpu = 0;
    for (int found = 0; !CPU_ISSET(cpu, &all) || found++ < rank;) ++cpu;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    std::fprintf(stderr, "Open MPI: rank %d on CPU %d\n", rank, cpu);
  }
  const long largest = std::atol(argc > 1 ? argv[1] : "0");
  std::vector<float> data(static_cast<std::size_t>(largest / 4), 0.0F);
  for (long bytes = 64; bytes <= largest; bytes *= 4) {
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
    mpirun --oversubscribe --bind-to none -np "$ranks" "$work/peer" "$largest" > "$work/mpi"
else
  echo "no Open MPI here: apt-get install libopenmpi-dev openmpi-bin"
fi

if /usr/bin/python3 -c 'import torch.distributed' 2> /dev/null; then
  cat > "$work/peer.py" << 'END'
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def run(rank, size, largest, path):
    torch.set_num_threads(1)
    cpus = sorted(os.sched_getaffinity(0))
    if size <= len(cpus):
        os.sched_setaffinity(0, {cpus[rank]})
        print(f"Gloo: rank {rank} on CPU {cpus[rank]}", file=sys.stderr)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
    data = torch.zeros(largest // 4)
    size_now = 64
    while size_now <= largest:
        part = data[: size_now // 4]
        best = 1e9
        for _ in range(max(5, min(100, 67108864 // size_now))):
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(part, op=dist.ReduceOp.SUM)
            took = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            best = min(best, took.item())
        if rank == 0:
            print(f"{size_now} {best * 1e6:.2f}", flush=True)
        size_now *= 4

if __name__ == "__main__":
    mp.spawn(run, args=(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]), nprocs=int(sys.argv[1]))
END
  /usr/bin/python3 -c 'import torch; print("PyTorch", torch.__version__)'
  PYTHONPATH="$work" /usr/bin/python3 "$work/peer.py" "$ranks" "$largest" "$work/meet" > "$work/gloo"
else
  echo "no PyTorch for /usr/bin/python3 here: apt-get install python3-torch"
fi

touch "$work/mpi" "$work/gloo"
echo "all-reduce of floats, $ranks ranks, private buffers: microseconds"
awk -v mpi="$work/mpi" -v gloo="$work/gloo" -v largest="$largest" 'BEGIN {
  while ((getline line < mpi) > 0) { split(line, f, " "); a[f[1]] = f[2] }
  while ((getline line < gloo) > 0) { split(line, f, " "); b[f[1]] = f[2] }
  printf "%12s %12s %12s\n", "bytes", "Open MPI", "Gloo"
  for (n = 64; n <= largest; n *= 4) printf "%12d %12s %12s\n", n, n in a ? a[n] : "-", n in b ? b[n] : "-"
}'
