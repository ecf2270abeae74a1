// SPDX-License-Identifier: MIT
// Eigen's float product x W^T, for peers/compare.py, on that many threads (OpenMP). Built with
// -march=native, as its users build it, so nothing of ours is included. The matrices lie in huge
// pages, as ours do. Prints milliseconds.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include <sys/mman.h>

#include <Eigen/Dense>

static float* huge_pages(long count) {
  constexpr std::size_t page = std::size_t{2} << 20;
  const std::size_t bytes =
      (static_cast<std::size_t>(count) * sizeof(float) + page - 1) / page * page;
  void* const memory = std::aligned_alloc(page, bytes);
  if (memory == nullptr) std::abort();
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice: where the system refuses, small pages do
  return static_cast<float*>(memory);
}

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "eigen_gemm M N K THREADS COUNT\n"), 2;
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const long m = std::atol(argv[1]), n = std::atol(argv[2]), k = std::atol(argv[3]);
  Eigen::setNbThreads(std::atoi(argv[4]));
  Eigen::Map<Matrix> x(huge_pages(m * k), m, k), w(huge_pages(n * k), n, k);
  Eigen::Map<Matrix> y(huge_pages(m * n), m, n);
  x.setRandom();
  w.setRandom();
  for (int i = -2; i < std::atoi(argv[5]); ++i) {
    const auto start = std::chrono::steady_clock::now();
    y.noalias() = x * w.transpose();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (i >= 0) std::printf("%.4f\n", took.count());
  }
  return y(0, 0) == 12345.0F ? 1 : 0;
}
