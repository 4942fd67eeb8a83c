// Places of workers in a generation of an elastic job.
#include <ATen/ATen.h>
// torch.h must come before this header.
#include <gmock/gmock.h>

#include "ranks.h"

namespace trireme::elastic_world_test {
namespace {

using tests::on_threads;

constexpr const char* kToken = "a token of this test";

TEST(ElasticWorld, LocalWorkersAreThoseOfTheSameHost) {
  for (const char* const backend : {"auto", "tcp"}) {
    const std::vector<std::string> hosts{"a", "b", "a"};
    const int count = static_cast<int>(hosts.size());
    membership::Coordinator coordinator(
        net::Endpoint{"127.0.0.1", 0}, kToken, {.workers = count},
        membership::RosterOptions{.minimum = count, .maximum = count, .target = count});
    std::vector<std::string> places(hosts.size());
    on_threads(count, [&](int process) {
      WorldOptions options = tests::world_options();
      options.host = hosts[static_cast<size_t>(process)];
      options.backend = backend;
      World world = World::join(
          options, Environment({{"TRIREME_WORKER", std::to_string(process)},
                                {"TRIREME_WORKERS", std::to_string(count)},
                                {"TRIREME_ELASTIC", "3:3"},
                                {"TRIREME_PROCESS", std::to_string(process)},
                                {"TRIREME_RENDEZVOUS", coordinator.endpoint().describe()},
                                {"TRIREME_JOB_TOKEN", kToken}}));
      const auto groups = world.make_groups();
      const at::Tensor one = at::ones({1});
      groups[0]->all_reduce(one);
      EXPECT_EQ(one.item<float>(), count);
      const membership::Identity& identity = world.identity();
      places[static_cast<size_t>(process)] =
          fmt::format("{} of {}", identity.local_worker, identity.local_workers);
      if (options.host == "b") {
        EXPECT_EQ(identity.local_workers, 1);
      } else {
        EXPECT_EQ(identity.local_workers, 2);
        EXPECT_LT(identity.local_worker, 2);
      }
      world.leave();
    });
    EXPECT_EQ(places[1], "0 of 1");
    EXPECT_NE(places[0], places[2]);
  }
}

}  // namespace
}  // namespace trireme::elastic_world_test
