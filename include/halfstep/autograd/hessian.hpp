// SPDX-License-Identifier: MIT
// The curvature of a model's loss: products of its Hessian, and of its Gauss-Newton matrix, with
// vectors, exact and without the matrix. Not for checking derivatives: hessian_check.hpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <halfstep/autograd/gradients.hpp>
#include <halfstep/autograd/tape.hpp>
#include <halfstep/autograd/variable.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/micro_batch.hpp>
#include <halfstep/core/strict_math.hpp>
#include <halfstep/numeric/convert.hpp>
#include <halfstep/numeric/dual.hpp>
#include <halfstep/numeric/element.hpp>
#include <halfstep/tensor/parameters.hpp>

namespace halfstep::inline HALFSTEP_CONFIG {

/// A loss as a function of all its parameters, around the values that they have when a product is
/// asked for. `curvature` makes one. Vectors have an element for each of the store's, in order of
/// registration; `part` finds a parameter in them. Everything is in units of the loss's sum: divide
/// by `count()` for the mean's.
///
/// A product is a forward and a backward pass on duals, by the user's own model, recompute segments
/// included: these keep and make again tangents as they do values. Random draws are those of one
/// micro-batch, so a product with dropout is that of the loss with the mask of that moment. Cost:
/// three times the products of a gradient, five thirds for Gauss-Newton. Memory, kept for the next
/// product: four numbers of S for each parameter, and twice the activations of a gradient in S.
template <class S>
requires std::same_as<S, float> || std::same_as<S, double>
class Curvature {
 public:
  using LossOf = std::function<Loss(Tape&)>;

  /// `build` makes the loss of a model on the store of duals that it is given. The parameters, and
  /// what that loss refers to, must outlive this.
  template <numeric::real_element T, class Build>
  Curvature(Parameters<T>& parameters, const MicroBatch& micro, const Build& build)
      : duals_(parameters.template as<dual<S>>()),
        tape_(parameters.runtime()),
        gradients_(duals_, tape_),
        micro_(micro),
        loss_of_(build(duals_)),
        read_([&parameters](Parameters<dual<S>>& duals) {
          for (std::uint32_t p = 0; p < duals.size(); ++p) {
            numeric::convert(duals.runtime().compute(),
                             std::span<const T>(parameters.values(ParameterId{p})),
                             duals.write({p}));
          }
        }) {}
  Curvature(const Curvature&) = delete;
  Curvature& operator=(const Curvature&) = delete;

  /// H v. @throws ShapeError unless v has size() elements; StateError for an op that makes
  /// something else of losses than a sum; whatever the model throws.
  [[nodiscard]] std::vector<S> hessian_vector_product(std::span<const S> v) {
    return product(v, false);
  }
  /// J' H_out J v: J is the derivative of what the losses are taken of, logits or outputs, and
  /// H_out the losses' own Hessian by those, p v - p (p . v) in a row of cross-entropy, 2 v in one
  /// of squared error. Positive semidefinite, and H where the model is linear. Source: Schraudolph,
  /// "Fast Curvature Matrix-Vector Products", Neural Computation 14 (2002).
  [[nodiscard]] std::vector<S> gauss_newton_vector_product(std::span<const S> v) {
    return product(v, true);
  }
  /// H times each of several vectors: one after the other, on the memory of one.
  [[nodiscard]] std::vector<std::vector<S>> hessian_vector_products(
      std::span<const std::vector<S>> vectors) {
    std::vector<std::vector<S>> products;
    for (const auto& v : vectors)
      products.push_back(product(v, false));
    return products;
  }

  /// The gradient, which hessian_vector_product comes by: the bits of a plain pass in S.
  /// @throws StateError unless the last product was one.
  [[nodiscard]] std::vector<S> gradient() {
    if (!has_gradient_) {
      core::fail<StateError>("Curvature::gradient: the last product was none with the Hessian. ",
                             "Ask for a hessian_vector_product first: the gradient comes with it.");
    }
    return plane(0);
  }
  /// Sum and count of the last product's loss.
  [[nodiscard]] double sum() const { return loss_.sum; }
  [[nodiscard]] double count() const { return loss_.count; }

  /// Elements of a vector.
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(duals_.count()); }
  [[nodiscard]] const std::vector<tensor::ParameterInfo>& infos() const { return duals_.infos(); }
  /// The elements of a parameter in a vector or a product. @throws OptionError for an unknown name.
  template <class U>
  [[nodiscard]] std::span<U> part(std::span<U> vector, std::string_view name) const {
    const auto& info = duals_.info(duals_.find(name));
    return vector.subspan(static_cast<std::size_t>(info.offset),
                          static_cast<std::size_t>(info.elements));
  }
  [[nodiscard]] std::span<const S> part(const std::vector<S>& vector, std::string_view name) const {
    return part(std::span<const S>(vector), name);
  }

 private:
  [[nodiscard]] std::vector<S> product(std::span<const S> v, bool gauss_newton) {
    if (v.size() != size()) {
      core::fail<ShapeError>("Curvature: the vector has ", v.size(),
                             " elements, the parameters have ", size(),
                             ". It wants one for each, in order of registration.");
    }
    has_gradient_ = false;
    read_(duals_);
    for (std::uint32_t p = 0; p < duals_.size(); ++p) {
      const auto& info = duals_.info({p});
      std::copy_n(v.data() + info.offset, info.elements, duals_.tangents({p}).data());
    }
    gradients_.clear();
    tape_.set_gauss_newton(gauss_newton);
    tape_.begin(micro_);
    loss_ = loss_of_(tape_);
    tape_.backward(loss_);
    has_gradient_ = !gauss_newton;
    auto result = plane(gauss_newton ? 0 : 1);
    tape_.begin(micro_);  // lets go of what the sweep has left
    return result;
  }
  [[nodiscard]] std::vector<S> plane(int which) {
    std::vector<S> all;
    all.reserve(size());
    for (std::uint32_t p = 0; p < duals_.size(); ++p) {
      const auto both = gradients_[ParameterId{p}];
      const auto one = both.subspan(which == 0 ? 0 : both.size() / 2, both.size() / 2);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  Parameters<dual<S>> duals_;
  Tape tape_;
  Gradients<dual<S>> gradients_;
  MicroBatch micro_;
  LossOf loss_of_;
  std::function<void(Parameters<dual<S>>&)> read_;
  Loss loss_;
  bool has_gradient_ = false;
};

/// The curvature of loss_of(model, tape), where model is Model<dual<S>>(scope, args…) around the
/// present values of `parameters`, which a Model<T>(scope, args…) has registered. loss_of is copied
/// and called at each product: what it captures by reference must outlive the result.
///
///   auto curvature = hs::curvature<Regressor>(parameters, {}, [&]<class T>(const Regressor<T>&
///   model, hs::Tape& tape) {
///     return hs::squared_error(model(hs::constant<T>(tape, {2, 3}, x)), y);
///   }, 3, 16);
///   const auto Hv = curvature.hessian_vector_product(v);
///   curvature.part(Hv, "up.weight");
///
/// S is what is computed in: float is as fast as training, double is exact to more digits.
template <template <class> class Model, class S = double, class T, class F, class... Args>
[[nodiscard]] Curvature<S> curvature(Parameters<T>& parameters, const MicroBatch& micro, F loss_of,
                                     const Args&... args) {
  return Curvature<S>(parameters, micro, [&](Parameters<dual<S>>& duals) {
    const auto model = std::make_shared<const Model<dual<S>>>(duals.scope(), args...);
    return typename Curvature<S>::LossOf(
        [model, loss_of](Tape& tape) { return loss_of(*model, tape); });
  });
}

}  // namespace halfstep::inline HALFSTEP_CONFIG
