#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <trireme/parallel/compression/kernels.h>
#include <limits>

namespace trireme::compression::compression_kernels_test {
namespace {

// An odd number of values, of all sizes that a float16 can tell apart, and below.
at::Tensor values_of_all_sizes() {
  const auto generator = at::detail::createCPUGenerator(5);
  const at::Tensor sizes = at::exp2(at::rand({4099}, generator, at::kFloat) * 42 - 26);
  return (sizes * at::randn({4099}, generator, at::kFloat).sign()).clamp(-65504, 65504);
}

TEST(CompressionKernels, RoundToBfloat16AsLibTorchDoes) {
  const at::Tensor values = values_of_all_sizes(), codes = at::empty_like(values, at::kBFloat16),
                   left = at::empty_like(values);
  to_bf16(values.const_data_ptr<float>(), values.numel(),
          static_cast<uint16_t*>(codes.mutable_data_ptr()), left.mutable_data_ptr<float>());
  EXPECT_TRUE(at::equal(codes, values.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(left, values - codes.to(at::kFloat)));
  const at::Tensor back = at::empty_like(values);
  from_bf16(static_cast<const uint16_t*>(codes.const_data_ptr()), values.numel(),
            back.mutable_data_ptr<float>());
  EXPECT_TRUE(at::equal(back, codes.to(at::kFloat)));
}

TEST(CompressionKernels, RoundToFloat16AsLibTorchDoesAlsoBelowItsNormalNumbers) {
  const at::Tensor values = values_of_all_sizes(), codes = at::empty_like(values, at::kHalf),
                   left = at::empty_like(values);
  to_fp16(values.const_data_ptr<float>(), values.numel(), 1,
          static_cast<uint16_t*>(codes.mutable_data_ptr()), left.mutable_data_ptr<float>());
  EXPECT_TRUE(at::equal(codes, values.to(at::kHalf)));
  EXPECT_TRUE(at::equal(left, values - codes.to(at::kFloat)));
  const at::Tensor back = at::empty_like(values);
  from_fp16(static_cast<const uint16_t*>(codes.const_data_ptr()), values.numel(), 1,
            back.mutable_data_ptr<float>());
  EXPECT_TRUE(at::equal(back, codes.to(at::kFloat)));
}

TEST(CompressionKernels, RoundToTheNearestWholeNumberOfSteps) {
  const float scale = 0.37F;
  const at::Tensor values = at::rand({1003}, at::kFloat) * 254 * scale - 127 * scale,
                   codes = at::empty_like(values, at::kChar);
  const at::Tensor left = at::empty_like(values), back = at::empty_like(values);
  to_int8(values.const_data_ptr<float>(), values.numel(), scale, codes.mutable_data_ptr<int8_t>(),
          left.mutable_data_ptr<float>());
  from_int8(codes.const_data_ptr<int8_t>(), values.numel(), scale, back.mutable_data_ptr<float>());
  EXPECT_LE((values - back).abs().max().item<float>(), scale * 0.5001F);
  EXPECT_TRUE(at::equal(left, values - back));
}

TEST(CompressionKernels, FindNonFiniteValuesAtAnyPlace) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    for (const int64_t place : {0, 7, 64, 130}) {
      at::Tensor values = at::full({131}, -std::numeric_limits<float>::max(), at::kFloat),
                 wide = values.to(at::kDouble);
      EXPECT_TRUE(is_finite(values.const_data_ptr<float>(), 131));
      EXPECT_TRUE(is_finite(wide.const_data_ptr<double>(), 131));
      values[place] = bad;
      wide[place] = bad;
      EXPECT_FALSE(is_finite(values.const_data_ptr<float>(), 131));
      EXPECT_FALSE(is_finite(wide.const_data_ptr<double>(), 131));
    }
  }
  EXPECT_TRUE(is_finite(static_cast<const float*>(nullptr), 0));
}

TEST(CompressionKernels, FindTheLargestMagnitude) {
  const at::Tensor values = values_of_all_sizes();
  EXPECT_EQ(largest_magnitude(values.const_data_ptr<float>(), values.numel()),
            values.abs().max().item<float>());
  EXPECT_EQ(largest_magnitude(nullptr, 0), 0);
}

struct Factors {
  at::Tensor matrix, p, q;
  Factors(int64_t rows, int64_t columns, int64_t rank)
      : matrix(at::randn({rows, columns}, at::kDouble)),
        p(at::zeros({rank, rows}, at::kDouble)),
        q(at::randn({rank, columns}, at::kDouble)) {}
  Thin<double> thin() const {
    return {matrix.size(0),
            matrix.size(1),
            p.size(0),
            matrix.mutable_data_ptr<double>(),
            p.mutable_data_ptr<double>(),
            q.mutable_data_ptr<double>()};
  }
};

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(CompressionKernels, MultiplyByThinFactorsOfAnyShape) {
  for (const auto& [rows, columns, rank] :
       std::vector<std::array<int64_t, 3>>{{5, 3, 1}, {37, 70, 2}, {64, 33, 5}, {1, 9, 1}}) {
    const Factors factors(rows, columns, rank);
    const at::Tensor error = at::randn({rows, columns}, at::kDouble),
                     whole = factors.matrix + error;
    project(factors.thin(), error.const_data_ptr<double>());
    EXPECT_LT(difference(factors.matrix, whole), 1e-14);
    EXPECT_LT(difference(factors.p, at::matmul(factors.q, whole.t())), 1e-12);
    project_back(factors.thin());
    EXPECT_LT(difference(factors.q, at::matmul(factors.p, whole)), 1e-11);
    const at::Tensor product = at::matmul(factors.p.t(), factors.q), left = at::empty_like(whole);
    restore(factors.thin(), 0.25, left.mutable_data_ptr<double>());
    EXPECT_LT(difference(factors.matrix, product), 1e-10);
    EXPECT_LT(difference(left, whole - 0.25 * product), 1e-10);
  }
}

TEST(CompressionKernels, OrthogonaliseAnyColumns) {
  Factors factors(50, 60, 4);
  const auto expect_orthogonal = [&](const char* which) {
    orthogonalise(factors.thin());
    EXPECT_LT(difference(at::matmul(factors.p, factors.p.t()), at::eye(4, at::kDouble)), 1e-12)
        << which;
  };
  factors.p.normal_();
  const at::Tensor before = factors.p.clone();
  expect_orthogonal("random");
  // The columns still span the same space.
  EXPECT_LT(difference(at::matmul(at::matmul(before, factors.p.t()), factors.p), before), 1e-12);
  factors.p.zero_();
  expect_orthogonal("zeros");
  factors.p.normal_().mul_(1e-30);
  expect_orthogonal("tiny");
  factors.p.normal_();
  factors.p[2].copy_(factors.p[0] * 3 - factors.p[1]);
  expect_orthogonal("dependent");
}

}  // namespace
}  // namespace trireme::compression::compression_kernels_test
