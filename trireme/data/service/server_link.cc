#include <trireme/data/service/server_link.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/json.h>
#include <trireme/base/log.h>
#include <trireme/base/units.h>
#include <trireme/data/service/host_socket.h>
#include <algorithm>
#include <utility>

namespace trireme::data {
namespace {

constexpr Milliseconds kFirstTry{500}, kLongestTry{60'000};
constexpr Milliseconds kLeastSilence{1000}, kMostSilence{10'000};

}  // namespace

ServerLink::ServerLink(std::string name, Connect connect, Prove prove, Milliseconds timeout)
    : name_(std::move(name)),
      connect_(std::move(connect)),
      prove_(std::move(prove)),
      timeout_(timeout),
      pause_(kFirstTry) {}

void ServerLink::open(Milliseconds patience) {
  OpenServer opened = connect_(Deadline::after(patience));
  prove_(name_, *opened.client, Deadline::after(patience));
  const std::lock_guard lock(mutex_);
  std::swap(server_, opened);
  not_before_ = {};
}

void ServerLink::try_again(Milliseconds patience) {
  tell_loss();
  try {
    open(patience);
    log_info("{} makes samples again", name_);
  } catch (const std::exception& error) {
    note_failure(error, false);
  }
}

bool ServerLink::is_due() const {
  const std::lock_guard lock(mutex_);
  const bool is_gone = !server_.client || server_.client->is_lost();
  return is_gone && Deadline::Clock::now() >= not_before_;
}

bool ServerLink::is_usable() const {
  const std::lock_guard lock(mutex_);
  return server_.client && !server_.client->is_lost() && Deadline::Clock::now() >= not_before_;
}

bool ServerLink::ask(const net::Message& request, const net::ChoosePlaces& choose,
                     Milliseconds patience) {
  std::shared_ptr<net::RequestClient> client;
  {
    const std::lock_guard lock(mutex_);
    if (!server_.client || Deadline::Clock::now() < not_before_) return false;
    client = server_.client;
  }
  bool is_refused = false;
  const auto choose_or_refuse = [&](const net::Head& head) {
    try {
      return choose(head);
    } catch (...) {
      is_refused = true;
      throw;
    }
  };
  try {
    client->call(request, choose_or_refuse, Deadline::after(patience), "samples");
  } catch (const std::exception& error) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    if (known && known->code() == ErrorCode::timeout)
      note_failure(error, true);
    else if (is_refused || client->is_lost())
      lose(client), note_failure(error, false);
    else
      log_debug("{}: {}", name_, error.what());  // The worker meets the cause itself.
    return false;
  }
  const std::lock_guard lock(mutex_);
  pause_ = kFirstTry;
  was_told_ = false;
  return true;
}

// No request may have met the loss.
void ServerLink::tell_loss() {
  OpenServer gone;
  const std::lock_guard lock(mutex_);
  if (!server_.client) return;
  std::swap(gone, server_);
  if (!std::exchange(was_told_, true))
    log_warning("{} is lost; this process makes the samples until it is there again", name_);
}

// A channel that is lost is not used any more. A new one may be there already.
void ServerLink::lose(const std::shared_ptr<net::RequestClient>& client) {
  OpenServer gone;
  const std::lock_guard lock(mutex_);
  if (server_.client == client) std::swap(gone, server_);
}

void ServerLink::note_failure(const std::exception& error, bool is_slow) {
  const std::lock_guard lock(mutex_);
  not_before_ = Deadline::Clock::now() + (is_slow ? std::max(timeout_, pause_) : pause_);
  pause_ = std::min(2 * pause_, kLongestTry);
  if (std::exchange(was_told_, true)) return;
  log_warning("{} {}; this process makes the samples until it is there again: {}", name_,
              is_slow ? "was too slow (data.service_timeout)" : "cannot be used",
              parts_of(error).what);
}

OpenServer connect_to(const net::Endpoint& server, const std::string& token, Deadline deadline,
                      Milliseconds silence) {
  net::ChannelOptions channel;
  channel.service = kServiceName;
  channel.limits.max_header_bytes = int64_t{4} << 20;
  channel.silence = std::clamp(silence, kLeastSilence, kMostSilence);
  try {
    return {std::make_shared<net::RequestClient>(server, token, deadline, channel), Descriptor()};
  } catch (const Error& error) {
    const std::string where = fmt::format("the data service at {}", server.describe());
    if (error.code() == ErrorCode::invalid_argument)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("{} has another secret than this process", where),
                  "the same TRIREME_DATA_TOKEN or TRIREME_DATA_TOKEN_FILE on both sides");
    throw Error(error.code(), "data",
                fmt::format("{} cannot be reached: {}", where, parts_of(error).what),
                "trireme data serve at this address, of the same version of Trireme");
  }
}

void compare_parts(net::RequestClient& client, const std::vector<PartFacts>& parts,
                   Deadline deadline) {
  for (const PartFacts& part : parts)
    client.call(
        {.header = Json{{"op", "compare"}, {"part", part.name}, {"facts", part.facts}}.dump()},
        net::Places{}, deadline, "compare");
}

}  // namespace trireme::data
