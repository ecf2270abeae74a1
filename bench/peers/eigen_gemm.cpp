// SPDX-License-Identifier: MIT
// Eigen's float product x W^T, for peers/compare.py, on that many threads (OpenMP). Built with
// -march=native, as its users build it, so nothing of ours is included. Prints milliseconds.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <Eigen/Dense>

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "eigen_gemm M N K THREADS COUNT\n"), 2;
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const long m = std::atol(argv[1]), n = std::atol(argv[2]), k = std::atol(argv[3]);
  Eigen::setNbThreads(std::atoi(argv[4]));
  const Matrix x = Matrix::Random(m, k), w = Matrix::Random(n, k);
  Matrix y(m, n);
  for (int i = -2; i < std::atoi(argv[5]); ++i) {
    const auto start = std::chrono::steady_clock::now();
    y.noalias() = x * w.transpose();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (i >= 0) std::printf("%.4f\n", took.count());
  }
  return y(0, 0) == 12345.0F ? 1 : 0;
}
