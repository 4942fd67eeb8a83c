#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <trireme/data/service/wire.h>
#include <trireme/net/requests/request_server.h>

#include "../base/expect_error.h"
#include "service.h"

namespace trireme::data {
namespace service_replies_tests {

using testing::HasSubstr;

// A server with the secret whose replies a test spoils.
class SpoilingServer {
 public:
  SpoilingServer()
      : source_(made_images("", 20)),
        server_({"127.0.0.1", 0}, kSecret,
                {.handle = [this](const net::Request& request,
                                  net::Responder responder) { handle(request, responder); }},
                options()) {}
  std::string address() const { return server_.endpoint().describe(); }

  std::function<void(Json& head)> spoil;  // Set it while nobody asks.
  std::atomic<int> asked{0};

 private:
  static net::RequestServerOptions options() {
    net::RequestServerOptions all;
    all.service = kServiceName;
    return all;
  }

  void handle(const net::Request& request, net::Responder& responder) {
    const Json question = Json::parse(request.head.header);
    if (question["op"] == "compare") {
      responder.reply({.header = "{}"});
      return;
    }
    ++asked;
    const Draws draws(question["indices"].get<std::vector<int64_t>>(), question["epoch"],
                      question["seed"]);
    SampleMaker::Samples samples;
    for (size_t i = 0; i < draws.indices.size(); ++i) {
      auto sample = std::make_shared<MadeSample>();
      sample->row = source_->get_batch(Draws({draws.indices[i]}, draws.epoch, draws.seed));
      samples.push_back(std::move(sample));
    }
    SamplesReply reply = reply_of(std::move(samples));
    Json head = Json::parse(reply.message.header);
    if (spoil) spoil(head);
    reply.message.header = head.dump();
    responder.reply(reply.message);
  }

  const std::shared_ptr<const Source> source_;
  net::RequestServer server_;
};

const std::pair<const char*, std::function<void(Json&)>> kSpoils[] = {
    {"twice", [](Json& head) { head["tensors"][1]["name"] = "data"; }},
    {"of the type", [](Json& head) { head["tensors"][0]["dtype"] = "Quaternion"; }},
    {"a wrong shape", [](Json& head) { head["tensors"][0]["shape"][0] = -3; }},
    {"a wrong shape",
     [](Json& head) { head["tensors"][0]["shape"] = {0, int64_t{1} << 62, int64_t{1} << 62}; }},
    {"too few bytes", [](Json& head) { head["tensors"][0]["shape"][0] = 1 << 20; }},
    {"a wrong count",
     [](Json& head) {
       head["work"] = {{"start", 1}, {"threads", -2}, {"served", 0}, {"stages", Json::array()}};
     }},
    {"a wrong stage",
     [](Json& head) {
       head["work"] = {{"start", 1}, {"threads", 2}, {"served", 0}};
       head["work"]["stages"] = Json::array({Json::array({"decode", -1.5, 1, 1})});
     }},
    {"cannot be read", [](Json& head) { head["work"] = "text"; }},
    {"cannot be read", [](Json& head) { head = "text"; }}};

TEST(DataService, AMalformedReplyAtTheStartIsRefusedByName) {
  SpoilingServer server;
  for (const auto& [part, spoil] : kSpoils) {
    server.spoil = spoil;
    EXPECT_THAT(message_of(ErrorCode::corrupt,
                           [&] { served(asks(server.address()), "", made_images("", 20)); }),
                testing::AllOf(HasSubstr(part), HasSubstr(server.address())));
  }
}

TEST(DataService, TheWorkerMakesTheSamplesOfAMalformedReply) {
  const auto plain = made_images("", 20);
  for (const auto& [part, spoil] : kSpoils) {
    SpoilingServer server;
    const auto source = served(asks(server.address()), "", made_images("", 20));
    expect_same_batches(*source, *plain, 1);
    EXPECT_EQ(source->served()->served, 4);
    server.spoil = spoil;
    const int before = server.asked;
    testing::internal::CaptureStderr();
    expect_same_batches(*source, *plain, 3);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr(server.address() + " gave a reply that"));
    EXPECT_THAT(said, HasSubstr(part));
    EXPECT_EQ(source->served()->made_here, 12) << part;
    // It counts as lost: only its proofs are asked for.
    EXPECT_LE(server.asked - before, 3) << part;
  }
}

TEST(DataService, AnotherServerGivesTheSamplesOfAMalformedReply) {
  SpoilingServer wrong;
  const auto right = serve(made_images("", 20), "");
  const auto plain = made_images("", 20);
  const auto source =
      served(asks(wrong.address() + "," + address_of(*right)), "", made_images("", 20));
  wrong.spoil = kSpoils[0].second;
  const int before = wrong.asked;
  expect_same_batches(*source, *plain);
  EXPECT_GT(wrong.asked, before);
  EXPECT_EQ(source->served()->made_here, 0);
  EXPECT_EQ(source->served()->served, 24);
}

}  // namespace service_replies_tests
}  // namespace trireme::data
