// SPDX-License-Identifier: MIT
#include <halfstep/kernels/held.hpp>

#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>

#include <halfstep/core/random.hpp>
#include <halfstep/kernels/adamw.hpp>
#include <halfstep/kernels/pack.hpp>
#include <halfstep/kernels/sgd.hpp>
#include <halfstep/kernels/stochastic_round.hpp>
#include <halfstep/numeric/round_to.hpp>

#include "cases.hpp"

namespace {

using namespace cases;
using namespace halfstep::kernels;
using halfstep::ShapeError;
namespace numeric = halfstep::numeric;

float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

std::vector<float> specials() {
  std::vector<float> x;
  for (const std::uint32_t u :
       {0x00000000U, 0x00000001U, 0x00007FFFU, 0x00008000U, 0x007FFFFFU, 0x00800000U, 0x33000000U,
        0x33000001U, 0x33800000U, 0x387FC000U, 0x387FFFFFU, 0x38800000U, 0x3F7F8000U, 0x3F800000U,
        0x3F808000U, 0x3F80FFFFU, 0x477FE000U, 0x477FE001U, 0x477FEFFFU, 0x477FF000U, 0x47800000U,
        0x7F7F0000U, 0x7F7F0001U, 0x7F7F7FFFU, 0x7F7F8000U, 0x7F7FFFFFU, 0x7F800000U, 0x7F800001U,
        0x7FBFFFFFU, 0x7FC00000U, 0x7FFFFFFFU}) {
    x.push_back(of_bits(u));
    x.push_back(of_bits(u | 0x80000000U));
  }
  return x;
}

// The rule of Split in 64-bit arithmetic: the multiple of 2^16 that is nearest, ties away from
// zero.
std::uint16_t upper_half(float x) {
  const std::uint64_t magnitude = bits_of(x) & 0x7FFFFFFFU;
  const std::uint32_t sign = bits_of(x) >> 31 << 15;
  if (magnitude > 0x7F800000U)
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(magnitude >> 16) | 0x40U);
  return static_cast<std::uint16_t>(sign |
                                    static_cast<std::uint32_t>((2 * magnitude + 65536) / 131072));
}
// What a float must come back as.
std::uint32_t returned(std::uint32_t bits) {
  return (bits & 0x7FFFFFFFU) > 0x7F800000U ? bits | 0x400000U : bits;
}

void split_all(const Compute& compute, const std::vector<float>& x, const std::string& name) {
  const auto n = static_cast<std::int64_t>(x.size());
  Guarded<bf16> high(n);
  Guarded<std::uint16_t> low(n);
  Guarded<float> back(n);
  pack(compute, std::span<const float>(x), Split(high, low));
  unpack(compute, Split(high, low), std::span<float>(back));
  for (std::int64_t i = 0; i < n; ++i) {
    const float wanted = x[static_cast<std::size_t>(i)];
    ASSERT_EQ(high[i].bits(), upper_half(wanted)) << name << " 0x" << std::hex << bits_of(wanted);
    ASSERT_EQ(bits_of(back[i]), returned(bits_of(wanted))) << name;
    ASSERT_EQ(isnan(high[i]), std::isnan(wanted)) << name;
  }
}

TEST(Split, OfAnyFloatComesBackAtEveryLengthOnEveryPath) {
  every_compute([](const Compute& compute, const std::string& name) {
    split_all(compute, specials(), name);
    for (std::int64_t n = 0; n <= 40; ++n)
      split_all(compute, values<float>(n, 3), name);
    split_all(compute, values<float>(40'003, 4), name);
  });
}
TEST(Split, DiffersFromRoundingToEvenAt32640FiniteFloatsAllOfThemTies) {
  // A tie is known by its lower half, so the 65,536 upper halves are all there are.
  std::vector<float> ties;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    const float tie = of_bits(upper << 16 | 0x8000U);
    if (std::isfinite(tie)) ties.push_back(tie);
  }
  std::vector<bf16> high(ties.size());
  std::vector<std::uint16_t> low(ties.size());
  pack(widest(), std::span<const float>(ties), Split(high, low));
  int differ = 0, infinite = 0;
  for (std::size_t i = 0; i < ties.size(); ++i) {
    differ += high[i].bits() != bf16{ties[i]}.bits();
    infinite += isinf(high[i]);
  }
  EXPECT_EQ(ties.size(), 65'280U);
  EXPECT_EQ(differ, 32'640);
  EXPECT_EQ(infinite, 2);
}
struct SplitCount {
  std::int64_t inputs = 0, mismatches = 0, infinite = 0, ties = 0;
};
/// Every float from `from` to `end`, some multiples of 2^16 apart, through `split` and back.
template <class SplitThem>
SplitCount compare_split(const Compute& compute, SplitThem split, std::uint64_t from,
                         std::uint64_t end) {
  constexpr std::size_t chunk = 1 << 16;
  std::vector<float> x(chunk), back(chunk);
  std::vector<bf16> high(chunk);
  std::vector<std::uint16_t> low(chunk);
  SplitCount count;
  for (std::uint64_t first = from; first < end; first += chunk) {
    for (std::size_t i = 0; i < chunk; ++i)
      x[i] = of_bits(static_cast<std::uint32_t>(first + i));
    split(compute, std::span<const float>(x), Split(high, low));
    unpack(compute, Split(high, low), std::span<float>(back));
    for (std::size_t i = 0; i < chunk; ++i, ++count.inputs) {
      count.mismatches +=
          bits_of(back[i]) != returned(bits_of(x[i])) || high[i].bits() != upper_half(x[i]);
      if (!std::isfinite(x[i])) continue;
      count.infinite += isinf(high[i]);
      count.ties += high[i].bits() != bf16{x[i]}.bits();
    }
  }
  return count;
}
constexpr auto split_rightly = [](const Compute& compute, std::span<const float> x, Split halves) {
  pack(compute, x, halves);
};
TEST(Split, TheComparisonOfEveryFloatSeesOneWrongHalf) {
  for (const bool upper : {true, false}) {
    const auto wrong = [&](const Compute& compute, std::span<const float> x, Split halves) {
      pack(compute, x, halves);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (bits_of(x[i]) != 0x3F80'1234U) continue;
        if (upper) {
          halves.high[i] = bf16::from_bits(static_cast<std::uint16_t>(halves.high[i].bits() ^ 1U));
        } else {
          halves.low[i] = static_cast<std::uint16_t>(halves.low[i] ^ 1U);
        }
      }
    };
    EXPECT_EQ(compare_split(widest(), wrong, 0x3F80'0000, 0x3F82'0000).mismatches, 1);
  }
  EXPECT_EQ(compare_split(widest(), split_rightly, 0x3F80'0000, 0x3F82'0000).mismatches, 0);
}
TEST(NightlySplit, ComesBackForEveryFloatOnEveryPath) {
  for (const Isa isa : halfstep::core::available_isas()) {
    const SplitCount count = compare_split({.isa = isa}, split_rightly, 0, std::uint64_t{1} << 32);
    std::printf("%lld inputs, %lld mismatches, path %s\n", static_cast<long long>(count.inputs),
                static_cast<long long>(count.mismatches),
                std::string(halfstep::core::to_string(isa)).c_str());
    EXPECT_EQ(count.inputs, std::int64_t{1} << 32);
    EXPECT_EQ(count.mismatches, 0);
    EXPECT_EQ(count.infinite, 65'536);
    EXPECT_EQ(count.ties, 32'640);
  }
}

template <class E>
struct DrawnTo : testing::Test {};
using Formats = testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(DrawnTo, Formats);

TYPED_TEST(DrawnTo, IsTheStochasticRoundingOfTheSameElementOnEveryPath) {
  using E = TypeParam;
  const auto check = [](const Compute& compute, const std::vector<float>& x, const Draws& draws,
                        const std::string& name) {
    const auto n = static_cast<std::int64_t>(x.size());
    Guarded<E> out(n);
    pack(compute, std::span<const float>(x), Drawn<E>(out, draws));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t word = halfstep::core::random_bits(
          draws.seed, draws.stream, draws.first + static_cast<std::uint64_t>(i));
      const std::uint64_t number = std::uint64_t{word} << 32;
      const auto wanted = numeric::round_to<E, numeric::Rounding::stochastic>(
          x[static_cast<std::size_t>(i)], number);
      ASSERT_EQ(out[i].bits(), wanted.bits()) << name << ", element " << i;
    }
  };
  every_compute([&](const Compute& compute, const std::string& name) {
    for (std::uint64_t first = 0; first < 9; ++first)
      check(compute, specials(), {1, 2, first}, name);
    for (std::int64_t n = 0; n <= 40; ++n)
      check(compute, values<float>(n, 5, 1e-5), {7, 8, static_cast<std::uint64_t>(n)}, name);
    check(compute, values<float>(40'003, 6), {1, 2, (std::uint64_t{1} << 33) - 77}, name);
  });
  const auto x = values<float>(3000, 12);
  std::vector<E> drawn(x.size()), rounded(x.size());
  pack(widest(), std::span<const float>(x), Drawn<E>(drawn, {3, 4, 7 * 5000 + 11}));
  stochastic_round<E>(widest(), x, rounded,
                      {.seed = 3, .stream = 4, .step = 7, .elements = 5000, .index = 11});
  EXPECT_SAME_BITS(drawn, rounded);
}
TYPED_TEST(DrawnTo, GivesTheSameBitsHoweverTheArrayIsCutAndOthersForOtherKeys) {
  using E = TypeParam;
  const auto x = values<float>(5000, 9);
  const std::span<const float> all(x);
  const auto run = [&](const Draws& draws, std::vector<std::size_t> cuts) {
    std::vector<E> out(x.size());
    std::size_t from = 0;
    cuts.push_back(x.size());
    for (const std::size_t to : cuts) {
      pack(widest(), all.subspan(from, to - from),
           Drawn<E>(std::span<E>(out).subspan(from, to - from),
                    {draws.seed, draws.stream, draws.first + from}));
      from = to;
    }
    return out;
  };
  const Draws draws{1, 2, 3};
  const auto whole = run(draws, {});
  EXPECT_SAME_BITS(run(draws, {1, 2, 5, 1024, 3333}), whole);
  EXPECT_SAME_BITS(run(draws, {4096}), whole);
  EXPECT_FALSE(difference(run({2, 2, 3}, {}), whole).empty());
  EXPECT_FALSE(difference(run({1, 3, 3}, {}), whole).empty());
  EXPECT_FALSE(difference(run({1, 2, 4}, {}), whole).empty());
}
TYPED_TEST(DrawnTo, CompensatedKeepsTheRestAndNoInfinityTakesOneAway) {
  using E = TypeParam;
  every_compute([](const Compute& compute, const std::string& name) {
    const auto x = values<float>(1000, 11);
    Guarded<E> kept(1000), rest(1000);
    pack(compute, std::span<const float>(x), Compensated<E>(kept, rest));
    for (std::int64_t i = 0; i < 1000; ++i) {
      const float whole = x[static_cast<std::size_t>(i)];
      ASSERT_EQ(kept[i].bits(), E{whole}.bits()) << name;
      const float off = whole - static_cast<float>(E{whole});
      ASSERT_EQ(rest[i].bits(), E{std::abs(off) < 0x1p-126F ? off * 0.0F : off}.bits()) << name;
    }
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> ends{inf, -inf, std::numeric_limits<float>::quiet_NaN(), 3.4e38F};
    Guarded<E> k(4), r(4);
    Guarded<float> back(4);
    pack(compute, std::span<const float>(ends), Compensated<E>(k, r));
    unpack(compute, Compensated<E>(k, r), std::span<float>(back));
    EXPECT_EQ(back[0], inf) << name;
    EXPECT_EQ(back[1], -inf) << name;
    EXPECT_TRUE(std::isnan(back[2])) << name;
    EXPECT_EQ(back[3], inf) << name;
  });
}

// One step over any way of holding is: everything to float, the step in float, everything back.
template <class W, class G, class M, class V>
void step_is_unpack_step_pack(W weights_of, M first_of, V second_of, const std::string& what) {
  constexpr std::int64_t n = 1061;
  const AdamWOptions options{.lr = 0.01, .beta2 = 0.99, .weight_decay = 0.1};
  every_compute([&](const Compute& compute, const std::string& name) {
    const auto w = weights_of(), wf = weights_of();
    const auto m = first_of(), mf = first_of();
    const auto v = second_of(), vf = second_of();
    const auto start = values<float>(n, 20);
    pack(portable(), std::span<const float>(start), w->view());
    pack(portable(), std::span<const float>(start), wf->view());
    for (int step = 1; step <= 3; ++step) {
      std::vector<G> g;
      std::vector<float> wide;
      for (const float x : values<float>(n, 30 + static_cast<std::uint64_t>(step), 0.01)) {
        g.push_back(G(x));
        wide.push_back(static_cast<float>(g.back()));
      }
      adamw_step<float>(compute, options, step, 0.5, w->view(), std::span<const G>(g), m->view(),
                        v->view());
      std::vector<float> a(n), b(n), c(n);
      unpack(portable(), wf->view(), std::span<float>(a));
      unpack(portable(), mf->view(), std::span<float>(b));
      unpack(portable(), vf->view(), std::span<float>(c));
      adamw_step<float>(portable(), options, step, 0.5, a, wide, b, c);
      pack(portable(), std::span<const float>(a), wf->view());
      pack(portable(), std::span<const float>(b), mf->view());
      pack(portable(), std::span<const float>(c), vf->view());
    }
    EXPECT_EQ(w->bytes(), wf->bytes()) << what << ", " << name;
    EXPECT_EQ(m->bytes(), mf->bytes()) << what << ", " << name;
    EXPECT_EQ(v->bytes(), vf->bytes()) << what << ", " << name;
  });
}
template <class A, class B>
struct Held {
  Guarded<A> a{1061};
  Guarded<B> b{1061};
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all(1061 * (sizeof(A) + sizeof(B)));
    const auto x = a.copy();
    const auto y = b.copy();
    std::memcpy(all.data(), static_cast<const void*>(x.data()), 1061 * sizeof(A));
    std::memcpy(all.data() + 1061 * sizeof(A), static_cast<const void*>(y.data()),
                1061 * sizeof(B));
    return all;
  }
};
template <class E>
struct HeldPlain : Held<E, E> {
  auto view() { return Plain<E>(this->a); }
};
template <class E>
struct HeldDrawn : Held<E, E> {
  auto view() { return Drawn<E>(this->a, {4, 5, 6}); }
};
template <class E>
struct HeldCompensated : Held<E, E> {
  auto view() { return Compensated<E>(this->a, this->b); }
};
struct HeldSplit : Held<bf16, std::uint16_t> {
  auto view() { return Split(a, b); }
};
struct HeldWithCopy : Held<float, fp16> {
  auto view() { return WithCopy<float, fp16>(a, b); }
};
template <class H>
std::unique_ptr<H> make() {
  return std::make_unique<H>();
}
TEST(Held, AStepIsThatOfFloatsBetweenReadingAndRounding) {
  const auto check = []<class W, class G, class M, class V>(const char* what) {
    step_is_unpack_step_pack<decltype(&make<W>), G>(&make<W>, &make<M>, &make<V>, what);
  };
  check.operator()<HeldWithCopy, float, HeldPlain<float>, HeldPlain<float>>("master");
  check.operator()<HeldSplit, bf16, HeldPlain<bf16>, HeldPlain<float>>("split");
  check.operator()<HeldCompensated<bf16>, bf16, HeldPlain<bf16>, HeldPlain<bf16>>("all bf16");
  check.operator()<HeldCompensated<fp16>, fp16, HeldPlain<fp16>, HeldPlain<float>>("fp16");
  check.operator()<HeldDrawn<bf16>, float, HeldDrawn<bf16>, HeldDrawn<bf16>>("drawn bf16");
  check.operator()<HeldDrawn<fp16>, fp16, HeldDrawn<fp16>, HeldPlain<float>>("drawn fp16");
}
TEST(Held, AnSgdStepToo) {
  const auto start = values<float>(1061, 20);
  const auto g = values<float>(1061, 21, 0.01);
  every_compute([&](const Compute& compute, const std::string& name) {
    HeldSplit w;
    HeldDrawn<bf16> velocity;
    std::vector<float> wf(start), vf(1061);
    HeldDrawn<bf16> wanted;
    pack(compute, std::span<const float>(start), w.view());
    for (int step = 0; step < 3; ++step) {
      sgd_step<float>(compute, {.momentum = 0.9, .nesterov = true}, 0.5, w.view(),
                      std::span<const float>(g), velocity.view());
      unpack(portable(), wanted.view(), std::span<float>(vf));
      sgd_step<float>(portable(), {.momentum = 0.9, .nesterov = true}, 0.5, wf, g, vf);
      pack(portable(), std::span<const float>(vf), wanted.view());
    }
    std::vector<float> joined(1061);
    unpack(compute, w.view(), std::span<float>(joined));
    EXPECT_SAME_BITS(joined, wf) << name;
    EXPECT_SAME_BITS(velocity.a.copy(), wanted.a.copy()) << name;
  });
}

TEST(HeldErrors, NameTheLengths) {
  std::vector<bf16> three(3);
  std::vector<std::uint16_t> four(4);
  EXPECT_EQ(
      message_of<ShapeError>([&] { (void)Split(three, four); }),
      "Split: 3 elements and 4, wanted as many of one as of the other. Were they made for the "
      "same parameter?");
  const std::vector<float> two(2);
  EXPECT_EQ(message_of<ShapeError>(
                [&] { pack(portable(), std::span<const float>(two), Plain<bf16>(three)); }),
            "pack: values has 2 elements but x 3");
}

}  // namespace
