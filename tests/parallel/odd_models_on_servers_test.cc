// Models whose parameters are not all trained, or have no elements, and more servers than pieces.
#include "mortal_job.h"
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <trireme/plan/server_plan.h>

namespace trireme::lost_servers {
namespace {

using tests::data_of;
using tests::thread_groups;

struct OddNet : torch::nn::Module {
  OddNet() {
    used = register_module("used", std::make_shared<tests::Mlp>());
    frozen = register_parameter("frozen", at::ones({3}, at::kDouble), /*requires_grad=*/false);
    unused = register_parameter("unused", at::ones({5}, at::kDouble));
    empty = register_parameter("empty", at::ones({0, 4}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) { return used->forward(x) + frozen.sum() + empty.sum(); }
  std::shared_ptr<tests::Mlp> used;
  at::Tensor frozen, unused, empty;
};

TEST(OddModelsOnServers, TrainAsOnOneDevice) {
  for (const OptimizerFactory& optimizer :
       {OptimizerFactory(SGD{.lr = 0.1, .momentum = 0.9}), OptimizerFactory(Adam{.lr = 0.01})})
    for (const Shape shape : {Shape{1, 1, 1}, Shape{9, 2, 1}, Shape{3, 3, 1}}) {
      ServerAccess access;
      access.options.servers = shape.servers;
      access.options.replication = shape.replication;
      access.options.patience = Milliseconds(5000);
      access.look = [] {};
      MortalServers servers(shape.servers, [&](int server) {
        return ParameterServerOptions{
            .placement = plan::place_on_servers(
                specs_of(state_of(*std::make_shared<OddNet>()).parameters), access.options),
            .server = server,
            .optimizer = optimizer};
      });
      access.token = servers.token;
      access.find = [&](Deadline) { return servers.places(); };
      access.find_again = [&](int server) { return servers.place(server); };
      access.is_lost = [&](int server, int which) { return servers.is_lost(server, which); };
      const auto groups = thread_groups(1);
      const auto of = [&](const char* strategy) {
        EngineSetting setting =
            tests::setting_of(groups[0], std::make_shared<OddNet>(), optimizer);
        setting.strategy = strategy;
        setting.servers = std::make_shared<ServerAccess>(access);
        return setting;
      };
      const auto alone = find_strategy("one_device").make(of("one_device")),
                 engine = make_server_engine(of("parameter_server"));
      for (int step = 0; step < 8; ++step) {
        EXPECT_NEAR(tests::take_step(*engine, data_of(kBatch, step), step + 1).loss,
                    tests::take_step(*alone, data_of(kBatch, step), step + 1).loss, 1e-10)
            << shape.servers << " servers, step " << step;
        if (shape.replication < 2 || step % 3 != 1) continue;
        servers.kill(step % shape.servers);
        servers.start(step % shape.servers);
        std::this_thread::sleep_for(Milliseconds(110));
      }
      engine->prepare_to_read();
      const EngineState state = engine->state();
      const auto fresh = make_server_engine(of("parameter_server"));
      tests::load(*fresh, tests::copy_of(state), 0);
      EXPECT_NEAR(tests::take_step(*fresh, data_of(kBatch, 8), 9).loss,
                  tests::take_step(*alone, data_of(kBatch, 8), 9).loss, 1e-10);
    }
}

}  // namespace
}  // namespace trireme::lost_servers
