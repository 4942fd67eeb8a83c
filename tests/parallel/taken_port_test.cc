// A server has ended, and a process of another job has its port before the job knows of the loss.
#include "mortal_job.h"

#include <trireme/net/requests/request_server.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include "../base/expect_error.h"

namespace trireme::taken_port_test {
namespace {

using lost_servers::Shape;
using tests::data_of;
using tests::Mlp;
using tests::MortalServers;

constexpr Shape kShape{2, 2, 1};

// The places of the servers, but a process of another job has the port of server 1.
class Job {
 public:
  ServerPlaces places() const {
    ServerPlaces all = servers.places();
    if (all[1]) all[1]->endpoint = stranger_.endpoint();
    return all;
  }
  MortalServers servers{
      2, lost_servers::options_of<Mlp>(kShape, {plan::Consistency::sync}, SGD{.lr = 0.1})};

 private:
  const net::RequestServer stranger_{
      {"127.0.0.1", 0}, "the token of another job", {.handle = [](auto, auto) {}}};
};

TEST(TakenPort, CountsAsTheLossOfTheServer) {
  const Job job;
  Mlp net;
  const auto parameters = state_of(net).parameters;
  EXPECT_THAT(message_of(ErrorCode::peer_lost,
                         [&] {
                           const ServerClient client(
                               job.places(), job.servers.token,
                               {.placement = lost_servers::placement_of(parameters, kShape)},
                               parameters, tests::soon());
                         }),
              ::testing::ContainsRegex("server 1 has ended: a process of another job listens at "
                                       "127.0.0.1:[0-9]+ now"));
}

TEST(TakenPort, AnEngineThatBeginsWaitsUntilTheJobKnowsOfTheLoss) {
  Job job;
  const auto groups = tests::thread_groups(1);
  ServerAccess access = lost_servers::access_to(job.servers, kShape, {});
  int looks = 0;
  access.find = [&](Deadline) {
    if (++looks == 3) job.servers.declare_lost(1);
    return job.places();
  };
  const SGD optimizer{.lr = 0.1};
  const auto engine =
      lost_servers::engine_of(groups[0], std::make_shared<Mlp>(), access, optimizer);
  EXPECT_EQ(looks, 3);
  EngineSetting alone = tests::setting_of(groups[0], std::make_shared<Mlp>(), optimizer);
  alone.strategy = "one_device";
  const auto one = find_strategy("one_device").make(alone);
  for (int step = 0; step < 3; ++step)
    EXPECT_NEAR(tests::take_step(*engine, data_of(24, step), step + 1).loss,
                tests::take_step(*one, data_of(24, step), step + 1).loss, 1e-10);
}

}  // namespace
}  // namespace trireme::taken_port_test
