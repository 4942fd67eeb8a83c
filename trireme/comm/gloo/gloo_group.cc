#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/comm/c10d_group.h>
#include <trireme/comm/control_store.h>
#include <trireme/comm/gloo/gloo_group.h>
#include <csignal>

namespace trireme::comm {
namespace {

// Gloo writes to sockets in a way that raises SIGPIPE: the exit of a peer would end this process
// without a message. If the programme has no handler of its own, this makes the write fail
// instead, which becomes peer_lost.
void ignore_broken_pipes() {
  struct sigaction now {};
  sigaction(SIGPIPE, nullptr, &now);
  const bool is_default = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_DFL;
  if (is_default) std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

std::shared_ptr<Group> make_gloo_group(std::shared_ptr<membership::Member> member, int rank,
                                       int size, const GlooOptions& options) {
  ignore_broken_pipes();
  auto store =
      c10::make_intrusive<ControlStore>(member, "gloo/" + options.name + "/", options.timeout);
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout + kC10dMargin);
  try {
    gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo);
    return make_c10d_group("gloo", at::kCPU, std::move(backend),
                           std::make_shared<WaitLimits>(member, options.timeout));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    member->throw_if_lost();
    throw Error(
        ErrorCode::io, "comm",
        fmt::format("Gloo cannot connect the ranks from address {}: {}", options.address,
                    brief(error)),
        "comm.interface: the name or address of the network interface that the other hosts reach");
  }
}
bool gloo_is_compiled_in() { return true; }

}  // namespace trireme::comm
