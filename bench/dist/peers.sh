#!/bin/sh
# SPDX-License-Identifier: MIT
# The same all-reduce by Open MPI (mpirun, mpicxx) and by Gloo (Debian's PyTorch), where they are
# installed: sh bench/dist/peers.sh [RANKS] [LARGEST BYTES]. Microseconds of the slowest rank, the
# least of some repetitions, as bench_dist_all_reduce prints them; run both in one go.
set -eu
ranks=${1:-2}
largest=${2:-67108864}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if command -v mpicxx > /dev/null && command -v mpirun > /dev/null; then
  cat > "$work/peer.cpp" << 'EOF'
#include <mpi.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const long largest = std::atol(argv[1]);
  std::vector<float> data(static_cast<std::size_t>(largest / 4), 0.0F);
  if (rank == 0) std::printf("Open MPI, %d ranks, private buffers\n%12s %12s\n", size, "bytes", "us");
  for (long bytes = 64; bytes <= largest; bytes *= 4) {
    const int inner = bytes <= 65536 ? 50 : 1;
    const long rounds = std::clamp(268435456 / bytes, 8L, 300L);
    double best = 1e9;
    for (long round = 0; round < rounds; ++round) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      for (int i = 0; i < inner; ++i)
        MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      double mine = (MPI_Wtime() - start) / inner, all = 0;
      MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      best = std::min(best, all);
    }
    if (rank == 0) std::printf("%12ld %12.2f\n", bytes, best * 1e6);
  }
  MPI_Finalize();
}
EOF
  mpicxx -O2 "$work/peer.cpp" -o "$work/peer"
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    mpirun --oversubscribe --bind-to none -np "$ranks" "$work/peer" "$largest"
else
  echo "no Open MPI here: apt-get install libopenmpi-dev openmpi-bin"
fi

if /usr/bin/python3 -c 'import torch.distributed' 2> /dev/null; then
  cat > "$work/peer.py" << 'EOF'
import os, sys, time
import torch, torch.distributed as dist, torch.multiprocessing as mp

def run(rank, size, largest, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
    data = torch.zeros(largest // 4)
    if rank == 0:
        print(f"Gloo, PyTorch {torch.__version__}, {size} ranks\n{'bytes':>12} {'us':>12}", flush=True)
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
            print(f"{size_now:12d} {best * 1e6:12.2f}", flush=True)
        size_now *= 4

if __name__ == "__main__":
    mp.spawn(run, args=(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]), nprocs=int(sys.argv[1]))
EOF
  PYTHONPATH="$work" /usr/bin/python3 "$work/peer.py" "$ranks" "$largest" "$work/meet"
else
  echo "no PyTorch for /usr/bin/python3 here: apt-get install python3-torch"
fi
