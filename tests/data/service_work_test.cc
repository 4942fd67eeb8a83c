#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <trireme/data/service/server_work.h>
#include <vector>

namespace trireme::data {
namespace service_work_tests {

const std::vector<StageUse> kLike{{.name = "read"}, {.name = "cache"}, {.name = "decode"}};

ServerWork work_at(int64_t served, double seconds, uint64_t start = 7) {
  return {start,
          2,
          served,
          {{"read", 0, served, 0}, {"decode", seconds, served, 10 * served}, {"flip", 1, 1, 1}}};
}

TEST(ServiceWork, AWorkerHasThePartOfItsSamples) {
  WorkForWorker work;
  EXPECT_EQ(work.stages(kLike)[2].seconds, 0);
  EXPECT_EQ(work.threads(), 0);
  work.note("server", work_at(10, 5), 3);
  EXPECT_EQ(work.stages(kLike)[2].seconds, 0);  // That was before.
  work.note("server", work_at(60, 15), 25);
  work.note("server", work_at(110, 25), 20);
  work.note("server", work_at(100, 24), 5);  // A reply that was overtaken.
  const std::vector<StageUse> stages = work.stages(kLike);
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_EQ(stages[1].name, "cache");
  EXPECT_EQ(stages[1].samples, 0);
  EXPECT_DOUBLE_EQ(stages[2].seconds, 10);
  EXPECT_EQ(stages[2].samples, 50);
  EXPECT_EQ(stages[2].bytes, 500);
  EXPECT_TRUE(stages[2].in_service);
  EXPECT_EQ(work.threads(), 2);
}

TEST(ServiceWork, TheWorkOfALostServerStays) {
  WorkForWorker work;
  for (uint64_t start : {1, 2, 3}) {
    work.note("server", work_at(0, 0, start), 0);
    work.note("server", work_at(20, 4, start), 20);
  }
  work.note("other", work_at(100, 50), 0);
  work.note("other", work_at(120, 60), 10);
  EXPECT_DOUBLE_EQ(work.stages(kLike)[2].seconds, 17);
  EXPECT_EQ(work.stages(kLike)[2].samples, 70);
  EXPECT_EQ(work.threads(), 4);
}

TEST(ServiceWork, PassesThroughAReply) {
  const ServerWork work = server_work_of(Json::parse(to_json(work_at(20, 4.5)).dump()));
  EXPECT_EQ(work.start, 7U);
  EXPECT_EQ(work.served, 20);
  ASSERT_EQ(work.stages.size(), 3U);
  EXPECT_EQ(work.stages[1].name, "decode");
  EXPECT_EQ(work.stages[1].seconds, 4.5);
  EXPECT_EQ(work.stages[1].bytes, 200);
}

}  // namespace service_work_tests
}  // namespace trireme::data
