// SPDX-License-Identifier: MIT
// How sharply does the loss bend? The largest eigenvalue of the Hessian by Lanczos' method, which
// needs nothing of the matrix but its products with vectors; held against the whole matrix, which a
// net this small can afford.
#include <cmath>
#include <cstdio>
#include <vector>

#include <Eigen/Core>
#include <Eigen/Eigenvalues>

#include <halfstep/autograd.hpp>
#include <halfstep/nn.hpp>
#include <halfstep/numeric/normal.hpp>

namespace hs = halfstep;
using Vector = std::vector<double>;

template <class T>
struct Net {
  hs::nn::Linear<T> in, out;
  explicit Net(const hs::Scope<T>& scope) : in(scope / "in", 2, 12), out(scope / "out", 12, 1) {}
  hs::Variable<T> operator()(hs::Variable<T> x) const { return out(hs::gelu(in(x))); }
};

double dot(const Vector& a, const Vector& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += a[i] * b[i];
  return sum;
}

/// The largest eigenvalue of the symmetric matrix that `times` multiplies by: of what it does to
/// the span of v, H v, H^2 v … up to `steps` of them.
template <class F>
double largest_eigenvalue(const F& times, Vector v, int steps) {
  std::vector<Vector> basis;
  // The matrix in that basis, tridiagonal.
  Eigen::MatrixXd inside = Eigen::MatrixXd::Zero(steps, steps);
  int made = 0;
  for (double length = std::sqrt(dot(v, v)); made < steps && length > 1e-9; ++made) {
    for (double& x : v)
      x /= length;
    if (made > 0) inside(made, made - 1) = inside(made - 1, made) = length;
    basis.push_back(v);
    v = times(v);
    inside(made, made) = dot(basis.back(), v);
    // Rounding lets the basis lean over; once more sets it right.
    for (int twice = 0; twice < 2; ++twice) {
      for (const Vector& b : basis) {
        const double along = dot(b, v);
        for (std::size_t i = 0; i < v.size(); ++i)
          v[i] -= along * b[i];
      }
    }
    length = std::sqrt(dot(v, v));
  }
  const Eigen::MatrixXd square = inside.topLeftCorner(made, made);
  return Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(square).eigenvalues().maxCoeff();
}

int main() {
  constexpr int points = 64;
  std::vector<float> positions, heights;
  for (int i = 0; i < points; ++i) {
    const float x = static_cast<float>(i % 8) / 4.0F - 1.0F,
                y = static_cast<float>(i / 8) / 4.0F - 1.0F;
    positions.insert(positions.end(), {x, y});
    heights.push_back(x * y + 0.5F * x);
  }
  hs::Runtime runtime({.seed = 1});
  hs::Parameters<float> parameters(runtime);
  const Net<float> net(parameters);
  auto curvature =
      hs::curvature<Net>(parameters, {}, [&]<class T>(const Net<T>& model, hs::Tape& tape) {
        return hs::squared_error(model(hs::constant<T>(tape, {points, 2}, positions)), heights);
      });
  const std::size_t n = curvature.size();

  Vector start(n);
  for (std::size_t i = 0; i < n; ++i)
    start[i] = static_cast<double>(hs::numeric::normal(1, 0, i));
  const auto hessian = [&](const Vector& v) { return curvature.hessian_vector_product(v); };
  const double sharpest = largest_eigenvalue(hessian, start, 20);
  std::printf("%zu parameters, largest eigenvalue %.9f by 20 products\n", n, sharpest);

  // All of the matrix, a column for each unit vector.
  Eigen::MatrixXd all(n, n);
  for (std::size_t j = 0; j < n; ++j) {
    Vector unit(n, 0.0);
    unit[j] = 1.0;
    const Vector column = curvature.hessian_vector_product(unit);
    for (std::size_t i = 0; i < n; ++i)
      all(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) = column[i];
  }
  const double lean = (all - all.transpose()).cwiseAbs().maxCoeff();
  const Eigen::VectorXd spectrum =
      Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(all).eigenvalues();
  const double expected = spectrum(spectrum.size() - 1);
  std::printf("by the whole matrix %.9f; smallest %.6f; asymmetric by %.1e\n", expected,
              spectrum(0), lean);

  std::printf(
      "plain gradient descent on the sum diverges here above a learning rate of 2 / it, %.5f\n",
      2.0 / sharpest);

  const auto gauss_newton_matrix = [&](const Vector& v) {
    return curvature.gauss_newton_vector_product(v);
  };
  const double gauss_newton = largest_eigenvalue(gauss_newton_matrix, start, 20);
  std::printf("of the Gauss-Newton matrix %.6f\n", gauss_newton);

  const bool right = std::fabs(sharpest - expected) < 1e-9 * expected && lean < 1e-12 * expected &&
                     gauss_newton > 0.0;
  return right ? 0 : 1;
}
