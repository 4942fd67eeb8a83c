// The messages between stages, which are received ahead where they run in the background.
#include <ATen/ATen.h>
#include <trireme/parallel/pipeline/activation_mail.h>
// This header must come after those of torch.
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <optional>

#include "../comm/ranks.h"

namespace trireme::activation_mail_test {
namespace {

using ::testing::HasSubstr;
using Items = std::vector<ActivationMail::Item>;
using tests::endings_of;
using tests::Groups;
using tests::on_ranks;
using tests::Workers;

constexpr Milliseconds kTimeout{20000};
// More than sockets hold.
constexpr int64_t kMany = 8 << 20;
constexpr std::chrono::seconds kSoon{10};

plan::PipelinePlan plan_of(const std::string& schedule, int microbatches) {
  return plan::plan_pipeline({schedule, 2, microbatches});
}

// The activations that the first stage sends to the second one.
plan::PipelineMessage activations(const plan::PipelinePlan& plan, int microbatch) {
  return *plan.sends({plan::PipelineTask::forward, microbatch, 0});
}

std::vector<bool> full(const plan::PipelinePlan& plan) {
  return std::vector<bool>(static_cast<size_t>(plan.facts.microbatches), true);
}

void expect_equal(const Items& received, const Items& sent) {
  ASSERT_EQ(received.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    ASSERT_EQ(received[i].tensor.defined(), sent[i].tensor.defined());
    if (!sent[i].tensor.defined()) continue;
    EXPECT_EQ(received[i].requires_grad, sent[i].requires_grad);
    EXPECT_EQ(received[i].tensor.scalar_type(), sent[i].tensor.scalar_type());
    EXPECT_TRUE(received[i].tensor.equal(sent[i].tensor));
  }
}

class Mail : public ::testing::TestWithParam<std::string> {
 protected:
  Groups groups(Milliseconds timeout = kTimeout) {
    if (GetParam() == "threads") return tests::thread_groups(2, plan::Algorithm::direct, timeout);
    WorldOptions options = tests::world_options(timeout);
    options.backend = GetParam();
    workers_.emplace(2, options);
    return workers_->make_groups();
  }
  void TearDown() override {
    if (workers_) workers_->leave();
  }
  std::optional<Workers> workers_;
};

std::shared_ptr<Group> itself(Group& group) {
  return {std::shared_ptr<Group>(), &group};  // The test keeps it.
}

TEST_P(Mail, CarriesListsOfAnyShapesAndTypes) {
  const std::vector<Items> lists = {
      {},
      {{at::arange(6, at::kFloat).view({2, 3}), true}},
      {{at::Tensor(), false}, {at::ones({}, at::kDouble), false}, {at::empty({0, 4}), true}},
      {{at::arange(20, at::kBFloat16).view({4, 5}).t(), true}, {at::ones({3}, at::kBool), false}},
      Items(40, {at::ones({1, 2, 1}, at::kInt), false}),  // Its description fills two letters.
  };
  const plan::PipelinePlan plan = plan_of("gpipe", static_cast<int>(lists.size()));
  on_ranks(groups(), [&](Group& group) {
    ActivationMail mail(itself(group), itself(group), plan);
    for (int pass = 0; pass < 3; ++pass) {
      mail.begin_pass(full(plan));
      for (int i = 0; i < plan.facts.microbatches; ++i)
        if (group.rank() == 0)
          mail.send(activations(plan, i), lists[static_cast<size_t>(i)]);
        else
          expect_equal(mail.receive(activations(plan, i)), lists[static_cast<size_t>(i)]);
      mail.finish();
    }
  });
}

TEST_P(Mail, IsTakenInAnyOrder) {
  const plan::PipelinePlan plan = plan_of("gpipe", 5);
  on_ranks(groups(), [&](Group& group) {
    ActivationMail mail(itself(group), itself(group), plan);
    mail.begin_pass(full(plan));
    if (group.rank() == 0)
      for (int i = 0; i < 5; ++i) mail.send(activations(plan, i), {{at::full({1 + i}, i), true}});
    else
      for (const int i : {3, 0, 4, 1, 2})
        expect_equal(mail.receive(activations(plan, i)), {{at::full({1 + i}, i), true}});
    mail.finish();
  });
}

TEST_P(Mail, WorksOutsideOfPassesToo) {
  const plan::PipelinePlan plan = plan_of("gpipe", 2);
  on_ranks(groups(), [&](Group& group) {
    ActivationMail mail(itself(group), itself(group), plan);
    for (const bool in_pass : {false, true, false}) {
      if (in_pass) mail.begin_pass({true, false});
      for (int times = 0; times < (in_pass ? 1 : 2); ++times)
        if (group.rank() == 0)
          mail.send(activations(plan, 0), {{at::full({4}, 7), false}});
        else
          expect_equal(mail.receive(activations(plan, 0)), {{at::full({4}, 7), false}});
      mail.finish();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, Mail, ::testing::Values("threads", "shm", "tcp", "gloo"),
                         [](const auto& each) { return each.param; });

using MailAhead = Mail;

TEST_P(MailAhead, ReceivesTheNextMessageBeforeItIsAskedFor) {
  const plan::PipelinePlan plan = plan_of("gpipe", 2);
  const Items large = {{at::arange(kMany, at::kInt), true}};
  std::promise<void> first_left;
  auto has_left = first_left.get_future();
  on_ranks(groups(), [&](Group& group) {
    ActivationMail mail(itself(group), itself(group), plan);
    mail.begin_pass(full(plan));
    if (group.rank() == 0) {
      mail.send(activations(plan, 0), large);
      mail.finish();
      first_left.set_value();
      mail.send(activations(plan, 1), {});
    } else {
      EXPECT_EQ(has_left.wait_for(kSoon), std::future_status::ready);
      expect_equal(mail.receive(activations(plan, 0)), large);
      expect_equal(mail.receive(activations(plan, 1)), {});
    }
    mail.finish();
  });
}

TEST_P(MailAhead, ReceivesNoMoreThanOneMessageAhead) {
  const plan::PipelinePlan plan = plan_of("gpipe", 3);
  const Items large = {{at::zeros({kMany}, at::kInt), true}};
  const Groups both = groups(Milliseconds(1500));
  std::promise<void> over;
  auto is_over = over.get_future();
  const auto endings = endings_of(both, [&](Group& group) {
    ActivationMail mail(itself(group), itself(group), plan);
    mail.begin_pass(full(plan));
    if (group.rank() == 1) {
      is_over.wait_for(kSoon);
      return;
    }
    mail.send(activations(plan, 0), large);
    mail.finish();
    mail.send(activations(plan, 1), large);
    struct Over {
      std::promise<void>& promise;
      ~Over() { promise.set_value(); }
    } at_the_end{over};
    mail.finish();
  });
  EXPECT_TRUE(endings[0].failed);
  EXPECT_EQ(to_string(endings[0].code), to_string(ErrorCode::timeout)) << endings[0].what;
  EXPECT_FALSE(endings[1].failed) << endings[1].what;
}

// A step that fails leaves a message that has come, and a receive for which none comes.
TEST_P(MailAhead, EndsAtOnceWithMessagesThatNobodyTakes) {
  const plan::PipelinePlan plan = plan_of("gpipe", 3);
  on_ranks(groups(), [&](Group& group) {
    std::optional<ActivationMail> mail(std::in_place, itself(group), itself(group), plan);
    mail->begin_pass(full(plan));
    if (group.rank() == 0) {
      mail->send(activations(plan, 0), {{at::ones({1000}), true}});
      mail->send(activations(plan, 1), {{at::ones({1000}), true}});
      mail->finish();
    } else {
      expect_equal(mail->receive(activations(plan, 0)), {{at::ones({1000}), true}});
    }
    group.barrier();
    const auto started = std::chrono::steady_clock::now();
    if (group.rank() == 0) mail->abandon();
    mail.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - started, kSoon);
  });
}

TEST_P(MailAhead, GivesTheErrorOfALostPeerToTheStepThatNeedsItsMessage) {
  const plan::PipelinePlan plan = plan_of("gpipe", 2);
  Groups both = groups();
  std::promise<void> taken;
  auto loser = std::async(std::launch::async, [&, has_taken = taken.get_future()]() mutable {
    has_taken.wait();
    workers_->coordinator().report_lost(0, "killed by signal 9 (SIGKILL)");
    both[0].reset();
    workers_->vanish(0);
  });
  ActivationMail(both[0], both[0], plan).send(activations(plan, 0), {{at::ones({3}), true}});
  const auto started = std::chrono::steady_clock::now();
  const auto endings = endings_of({both[1]}, [&](Group& group) {
    ActivationMail mail(itself(group), itself(group), plan);
    mail.begin_pass(full(plan));
    expect_equal(mail.receive(activations(plan, 0)), {{at::ones({3}), true}});
    taken.set_value();
    mail.receive(activations(plan, 1));
  });
  loser.get();
  EXPECT_LT(std::chrono::steady_clock::now() - started, kSoon);
  EXPECT_EQ(to_string(endings[0].code), to_string(ErrorCode::peer_lost)) << endings[0].what;
  EXPECT_THAT(endings[0].what, HasSubstr("worker 0"));
  both.clear();
  workers_.reset();
}

INSTANTIATE_TEST_SUITE_P(Backends, MailAhead, ::testing::Values("tcp", "gloo"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace trireme::activation_mail_test
