#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/hash.h>
#include <trireme/plan/bucket_plan.h>
#include <numeric>

#include "../base/expect_error.h"

namespace trireme::plan::bucket_plan_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TensorSpec floats(const std::string& name, int64_t elements) { return {name, {elements}}; }
std::vector<TensorSpec> four_layers() {
  return {floats("a", 10), floats("b", 20), floats("c", 30), floats("d", 40)};
}

std::vector<std::vector<int>> params_of(const BucketPlan& plan) {
  std::vector<std::vector<int>> params;
  for (const Bucket& bucket : plan.buckets) params.push_back(bucket.params);
  return params;
}

TEST(BucketPlan, SendsTheLastDeclaredFirst) {
  const BucketPlan plan = plan_buckets(four_layers(), {});
  ASSERT_EQ(plan.buckets.size(), 1U);
  EXPECT_THAT(plan.buckets[0].params, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(plan.buckets[0].offsets, ElementsAre(0, 40, 70, 90));
  EXPECT_EQ(plan.buckets[0].elements, 100);
  EXPECT_EQ(plan.bytes(), 400);
}

TEST(BucketPlan, FillsBucketsUpToTheirCapacity) {
  EXPECT_THAT(params_of(plan_buckets(four_layers(), {.capacity_bytes = 200, .first_bytes = 200})),
              ElementsAre(ElementsAre(3), ElementsAre(2, 1), ElementsAre(0)));
}

TEST(BucketPlan, StartsWithASmallBucket) {
  const std::vector<TensorSpec> params(10, floats("layer", 10));
  EXPECT_THAT(params_of(plan_buckets(params, {.capacity_bytes = 200, .first_bytes = 80})),
              ElementsAre(ElementsAre(9, 8), ElementsAre(7, 6, 5, 4, 3), ElementsAre(2, 1, 0)));
}

TEST(BucketPlan, NeverMakesTheFirstBucketLargerThanTheCapacity) {
  const std::vector<TensorSpec> params(4, floats("layer", 10));
  EXPECT_THAT(params_of(plan_buckets(params, {.capacity_bytes = 80})),
              ElementsAre(ElementsAre(3, 2), ElementsAre(1, 0)));
}

TEST(BucketPlan, GivesAnOversizedTensorItsOwnBucket) {
  const std::vector<TensorSpec> params = {floats("a", 10), floats("huge", 1000), floats("b", 10)};
  EXPECT_THAT(params_of(plan_buckets(params, {.capacity_bytes = 100, .first_bytes = 100})),
              ElementsAre(ElementsAre(2), ElementsAre(1), ElementsAre(0)));
}

TEST(BucketPlan, KeepsDTypesApartAndOrdersBucketsByTheirLastGradient) {
  const std::vector<TensorSpec> params = {{"a", {4}, DType::float32},
                                          {"b", {4}, DType::bfloat16},
                                          {"c", {4}, DType::float32},
                                          {"d", {4}, DType::bfloat16}};
  const BucketPlan plan = plan_buckets(params, {});
  EXPECT_THAT(params_of(plan), ElementsAre(ElementsAre(3, 1), ElementsAre(2, 0)));
  EXPECT_EQ(plan.buckets[0].dtype, DType::bfloat16);
  EXPECT_EQ(plan.bytes(), 2 * 4 * 2 + 2 * 4 * 4);
}

TEST(BucketPlan, LeavesOutFrozenParameters) {
  std::vector<TensorSpec> params = four_layers();
  params[2].trainable = false;
  EXPECT_THAT(params_of(plan_buckets(params, {})), ElementsAre(ElementsAre(3, 1, 0)));
  EXPECT_NO_THROW(check(plan_buckets(params, {}), params));
}

TEST(BucketPlan, IsEmptyIfNothingIsTrainable) {
  EXPECT_THAT(plan_buckets({}, {}).buckets, IsEmpty());
  const std::vector<TensorSpec> frozen = {{"a", {3}, DType::float32, false}};
  EXPECT_THAT(plan_buckets(frozen, {}).buckets, IsEmpty());
  EXPECT_NO_THROW(check(BucketPlan{}, frozen));
}

TEST(BucketPlan, RefusesSizesThatAreNotPositiveByName) {
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { plan_buckets({}, {.capacity_bytes = 0}); }),
      HasSubstr("capacity_bytes is 0"));
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { plan_buckets({}, {.first_bytes = -1}); }),
      HasSubstr("first_bytes is -1"));
}

TEST(BucketPlan, IsAcceptedByItsCheckerForModelsOfAllKinds) {
  const std::vector<int64_t> sizes = {0, 1, 2, 3, 5, 7, 97, 1000};
  const std::vector<DType> dtypes = {DType::float32, DType::bfloat16, DType::float64};
  for (uint64_t model = 0; model < 300; ++model) {
    std::vector<TensorSpec> params;
    for (uint64_t i = 0; i < model % 23; ++i) {
      const uint64_t random = mix64(model, i);
      params.push_back({"p" + std::to_string(i),
                        {sizes[random % 8]},
                        dtypes[(random >> 8) % 3],
                        (random >> 16) % 5 != 0});
    }
    for (const int64_t capacity : {1, 4, 100, 1 << 20}) {
      const BucketOptions options{.capacity_bytes = capacity, .first_bytes = 50};
      const BucketPlan plan = plan_buckets(params, options);
      ASSERT_NO_THROW(check(plan, params)) << plan.describe();
      for (const Bucket& bucket : plan.buckets) {
        const bool fits = bucket.elements * bytes_of(bucket.dtype) <= capacity;
        EXPECT_TRUE(fits ||
                    bucket.elements ==
                        params[static_cast<size_t>(bucket.params.front())].elements() ||
                    bucket.params.size() > 1);
        const int64_t last_added = bucket.offsets.back() * bytes_of(bucket.dtype);
        EXPECT_LE(last_added, capacity) << "a tensor was put behind a full bucket";
      }
    }
  }
}

class BrokenBucketPlan : public testing::Test {
 protected:
  const std::vector<TensorSpec> params = [] {
    auto specs = four_layers();
    specs.push_back({"frozen", {5}, DType::float32, false});
    return specs;
  }();
  BucketPlan plan = plan_buckets(params, {.capacity_bytes = 200, .first_bytes = 200});

  std::string rejection() {
    return message_of(ErrorCode::internal, [&] { check(plan, params); });
  }
};

TEST_F(BrokenBucketPlan, IsRejectedWhenAParameterIsMissing) {
  plan.buckets.pop_back();
  EXPECT_THAT(rejection(), HasSubstr("parameter 0 'a' is in no bucket"));
}

TEST_F(BrokenBucketPlan, IsRejectedWhenAParameterIsInTwoPlaces) {
  plan.buckets[2].params[0] = 3;
  EXPECT_THAT(rejection(), HasSubstr("parameter 3 'd' is in two places"));
}

TEST_F(BrokenBucketPlan, IsRejectedWhenParametersOverlap) {
  plan.buckets[1].offsets[1] -= 1;
  EXPECT_THAT(rejection(),
              AllOf(HasSubstr("parameter 1 'b' overlaps parameter 2"), HasSubstr("bucket 1")));
}

TEST_F(BrokenBucketPlan, IsRejectedWhenAParameterLeavesItsBucket) {
  plan.buckets[1].elements -= 1;
  EXPECT_THAT(rejection(),
              HasSubstr("parameter 1 'b' takes elements 30 to 50 of bucket 1, which has 49"));
  plan.buckets[1].offsets[0] = -1;
  EXPECT_THAT(rejection(), HasSubstr("parameter 2 'c' takes elements -1"));
}

TEST_F(BrokenBucketPlan, IsRejectedWhenADTypeDiffers) {
  plan.buckets[0].dtype = DType::float16;
  EXPECT_THAT(rejection(), HasSubstr("parameter 3 'd' is float32 in bucket 0 of float16"));
}

TEST_F(BrokenBucketPlan, IsRejectedWhenItHoldsAFrozenOrUnknownParameter) {
  plan.buckets[0].params[0] = 4;
  EXPECT_THAT(rejection(), HasSubstr("'frozen' in bucket 0 is not trainable"));
  plan.buckets[0].params[0] = 5;
  EXPECT_THAT(rejection(), HasSubstr("names parameter 5 of 5"));
}

TEST_F(BrokenBucketPlan, IsRejectedWhenAnOffsetIsMissing) {
  plan.buckets[1].offsets.pop_back();
  EXPECT_THAT(rejection(), HasSubstr("bucket 1 has 1 offsets for 2 parameters"));
}

TEST(BucketPlan, PrintsOneLineABucket) {
  EXPECT_EQ(plan_buckets(four_layers(), {.capacity_bytes = 200, .first_bytes = 200}).describe(),
            "3 gradient buckets, 400 B, first ready first\n"
            "bucket  dtype          bytes      elements  parameters\n"
            "     0  float32        160 B            40  3\n"
            "     1  float32        200 B            50  2..1\n"
            "     2  float32         40 B            10  0\n");
}

TEST(BucketPlan, GivesItsBucketsAsJson) {
  const std::vector<TensorSpec> params = {floats("a", 2), floats("b", 3)};
  EXPECT_EQ(plan_buckets(params, {}).to_json().dump(),
            R"({"bytes":20,"buckets":[{"dtype":"float32","elements":5,)"
            R"("params":[1,0],"offsets":[0,3]}]})");
}

}  // namespace
}  // namespace trireme::plan::bucket_plan_test
