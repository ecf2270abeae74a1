// SPDX-License-Identifier: MIT
// Do the formats hold what numpy and ml_dtypes say, and round as they do? numeric.py asks them.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <numeric/formats.hpp>
#include <require.hpp>

namespace {

using namespace halfstep_tests;

/// The script's file, read from front to back.
class Answers {
 public:
  explicit Answers(std::string bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::string name() {
    const std::string padded = bytes_.substr(at_, 16);
    at_ += 16;
    return padded.c_str();
  }
  template <class T>
  [[nodiscard]] std::vector<T> array() {
    std::uint32_t n = 0;
    take(&n, sizeof n);
    std::vector<T> values(n);
    take(values.data(), n * sizeof(T));
    return values;
  }
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }

 private:
  void take(void* out, std::size_t n) {
    if (bytes_.size() - at_ < n) {
      ADD_FAILURE() << "numeric.py's file ends at " << bytes_.size();
      at_ = bytes_.size();
      return;
    }
    std::memcpy(out, bytes_.data() + at_, n);
    at_ += n;
  }
  std::string bytes_;
  std::size_t at_ = 0;
};

/// A quiet NaN's payload is ours to keep and theirs to drop; its sign, and all else, must agree.
template <class T>
std::uint32_t without_payload(std::uint32_t code) {
  if (!T::format::is_nan(code) || !T::format::has_infinity) return code;
  return (code & T::format::sign_code) | T::format::nan_code;
}

/// How many of the inputs `convert` turns into another code than numpy does.
template <class T, class Real, class Convert>
std::int64_t differences(const std::vector<Real>& in, const std::vector<std::uint16_t>& expected,
                         Convert convert) {
  std::int64_t wrong = in.size() == expected.size() ? 0 : 1;
  for (std::size_t i = 0; i < in.size() && i < expected.size(); ++i) {
    const T found = convert(in[i]);
    if (without_payload<T>(found.bits()) == without_payload<T>(expected[i])) continue;
    if (++wrong == 1)
      ADD_FAILURE() << name_of<T> << " of " << in[i] << " is " << found.bits() << ", they say "
                    << expected[i];
  }
  return wrong;
}

/// Our conversion, but for the one range in which theirs is not to the nearest: a little above
/// 2^-127 a scale becomes 2^-126 there.
template <class T>
T as_theirs(float x) {
  if constexpr (std::is_same_v<T, halfstep::fp8_e8m0>) {
    if (x > 0x1p-127F && x < 0x1.8p-127F) return code<T>(1);
  }
  return T{x};
}

template <class T>
void expect_the_same(Answers& theirs) {
  ASSERT_EQ(theirs.name(), name_of<T>);
  const auto values = theirs.array<double>();
  ASSERT_EQ(values.size(), codes<T>);
  for (std::uint32_t bits = 0; bits < codes<T>; ++bits) {
    const auto mine = static_cast<double>(code<T>(bits));
    ASSERT_TRUE(std::isnan(mine) ? std::isnan(values[bits])
                                 : std::bit_cast<std::uint64_t>(mine) ==
                                       std::bit_cast<std::uint64_t>(values[bits]))
        << name_of<T> << ' ' << bits << ": " << mine << ", they say " << values[bits];
  }
  const auto floats = theirs.array<float>();
  const auto from_floats = theirs.array<std::uint16_t>();
  std::int64_t wrong = differences<T>(floats, from_floats, as_theirs<T>);
  const auto doubles = theirs.array<double>();
  const auto from_doubles = theirs.array<std::uint16_t>();
  // numpy rounds a double to fp16 once. ml_dtypes goes through float, and so it rounds 1 + 2^-8 +
  // 2^-40 to the bf16 1: asked for the same detour, we must agree.
  const auto by_way = [](double x) {
    if constexpr (std::is_same_v<T, halfstep::fp16>) return T{x};
    return as_theirs<T>(static_cast<float>(x));
  };
  wrong += differences<T>(doubles, from_doubles, by_way);
  std::printf("%s: %zu codes, %zu floats, %zu doubles, %lld mismatches, path scalar\n", name_of<T>,
              values.size(), floats.size(), doubles.size(), static_cast<long long>(wrong));
  EXPECT_EQ(wrong, 0);
}
template <class... T>
void expect_all_the_same(Answers& theirs, Formats<T...>) {
  (expect_the_same<T>(theirs), ...);
}

TEST(InteropNumeric, FormatsHoldAndRoundWhatNumpyAndMlDtypesSay) {
  const char* const python = std::getenv("HALFSTEP_PYTHON");
  const std::string interpreter = python != nullptr ? python : "python3";
  if (std::system((interpreter + " -c 'import numpy, ml_dtypes' 2>/dev/null").c_str()) != 0) {
    HALFSTEP_SKIP_OR_FAIL(interpreter << " has no numpy or no ml_dtypes; sh cmake/check.sh "
                                         "--interop makes an environment that has");
  }
  const std::string path = testing::TempDir() + "halfstep_interop_numeric.bin";
  ASSERT_EQ(
      std::system(
          (interpreter + " " HALFSTEP_SOURCE_DIR "/tests/interop/numeric.py " + path).c_str()),
      0);
  std::ifstream file(path, std::ios::binary);
  Answers theirs(std::string(std::istreambuf_iterator<char>(file), {}));
  std::remove(path.c_str());
  expect_all_the_same(theirs, AllFormats{});
  EXPECT_TRUE(theirs.at_end());
}

// The comparison is not blind: a converter that truncates is caught.
TEST(InteropNumeric, AWrongConversionIsSeen) {
  using halfstep::fp8_e4m3;
  const auto truncate = [](float x) { return code<fp8_e4m3>(fp8_e4m3{x}.bits() & 0xFEU); };
  EXPECT_NONFATAL_FAILURE(
      (void)(differences<fp8_e4m3, float>({1.0F, 1.125F}, {0x38, 0x39}, truncate)), "they say 57");
}

}  // namespace
