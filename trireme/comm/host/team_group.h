// The common part of the groups whose ranks are a HostTeam: threads of a process (thread_group),
// or processes of a host (shm_group). Their collectives are CollectivePlans.
#pragma once
#include <trireme/comm/group.h>
#include <trireme/comm/host/host_team.h>
#include <trireme/comm/prepared_plan.h>
#include <trireme/plan/placement.h>
#include <memory>
#include <string>
#include <utility>

namespace trireme::comm {

class TeamGroup : public Group {
 public:
  void do_abort(const std::string& reason) override { team_->abort(reason); }
  std::shared_ptr<HostTeam> host_team() const override { return team_; }
  plan::Placement placement() const override {
    plan::Placement here = plan::on_one_host(size(), std::string(backend()), plans_->table());
    here.inside.front().hosts = plans_->hosts();
    return here;
  }

 protected:
  TeamGroup(std::shared_ptr<HostTeam> team, std::shared_ptr<const PlanChoice> plans)
      : Group(team->rank(), team->size()), team_(std::move(team)), plans_(std::move(plans)) {}

  // The call of a collective, for HostTeam::meet().
  static Intent intent_of(const char* operation, const at::Tensor& tensor,
                          std::string_view detail) {
    std::string form = c10::toString(tensor.scalar_type());
    return {operation, tensor.numel(), form.append(", ").append(detail)};
  }
  static int64_t bytes_of(const at::Tensor& tensor) {
    return static_cast<int64_t>(tensor.nbytes());
  }

  const std::shared_ptr<HostTeam> team_;
  const std::shared_ptr<const PlanChoice> plans_;

 private:
  // Whatever runs it, a collective does what its plan says.
  int64_t bytes_sent_in(plan::Collective collective, int64_t elements, int64_t element_bytes,
                        int root) const override {
    return plans_->bytes_sent(rank(), collective, elements, element_bytes, root);
  }
  void do_barrier() override { team_->meet({"barrier", 0, "no tensor"}); }
};

// A message that one of the group's mail boxes carries. It keeps them.
template <typename Mail, typename Message>
class MailWork : public Work {
 public:
  MailWork(std::shared_ptr<Mail> mail, Message message)
      : mail_(std::move(mail)), message_(std::move(message)) {}
  void wait() override { mail_->wait(message_); }
  bool wait_for(Milliseconds patience) override { return mail_->wait_for(message_, patience); }

 private:
  std::shared_ptr<Mail> mail_;
  Message message_;
};
template <typename Mail, typename Message>
WorkPtr mail_work(std::shared_ptr<Mail> mail, Message message) {
  return std::make_unique<MailWork<Mail, Message>>(std::move(mail), std::move(message));
}

}  // namespace trireme::comm
