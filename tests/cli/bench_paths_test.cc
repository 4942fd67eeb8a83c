#include <gmock/gmock.h>
#include <trireme/cli/bench_paths.h>
#include <trireme/plan/collective_cost.h>

#include "../base/expect_error.h"

namespace trireme::cli::bench_paths_test {
namespace {

TEST(BenchPaths, AreFoundByNameAndListedForAnUnknownName) {
  EXPECT_TRUE(find_bench_path("threads").in_threads);
  EXPECT_EQ(find_bench_path("gloo").backend, "gloo");
  EXPECT_THAT(
      message_of(ErrorCode::unsupported, [] { find_bench_path("pigeon"); }),
      testing::AllOf(testing::HasSubstr("--path pigeon"), testing::HasSubstr(bench_path_names())));
}

TEST(BenchPaths, ShareMemoryForThreadsAndShmOnly) {
  EXPECT_EQ(bench_path_names(/*sharing_memory=*/true), "threads, shm");
}

TEST(BenchPaths, ContainEveryPathThatRunsPlans) {
  for (const std::string_view path : plan::paths_with_plans())
    EXPECT_NO_THROW(find_bench_path(path)) << path;
}

}  // namespace
}  // namespace trireme::cli::bench_paths_test
