#include <trireme/parallel/servers/server_chains.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/net/control.h>
#include <algorithm>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

namespace trireme::servers {
namespace {

constexpr Milliseconds kLookAgain{5};
// A process that ended is known to the job after this time; a connection that broke is tried
// again.
constexpr Milliseconds kBeforeConnecting{100};
constexpr Milliseconds kConnectAgain{200};
// A call that failed at a server which answers: the job may be about to lose it.
constexpr Milliseconds kDoubt{3000};

}  // namespace

ServerChains::ServerChains(plan::PlacementPlan placement, const ServerPlaces& places,
                           std::string token, net::ChannelOptions channel, IsServerLost is_lost,
                           WhyServerLost why_lost, std::function<void()> look, Deadline deadline)
    : placement_(std::move(placement)),
      token_(std::move(token)),
      channel_(std::move(channel)),
      is_lost_(std::move(is_lost)),
      why_lost_(std::move(why_lost)),
      look_(std::move(look)),
      processes_(places.size()),
      chains_(places.size()) {
  for (int server = 0; server < shards(); ++server) {
    process(server).place = places[static_cast<size_t>(server)];
    if (process(server).place) connect(server, deadline);
  }
  for (int shard = 0; shard < shards(); ++shard)
    for (const int server : placement_.chain(shard))
      if (process(server).client) chain(shard).push_back({shard, server});
  require_all_chains();
}

void ServerChains::connect(int server, Deadline deadline) {
  Process& one = process(server);
  try {
    one.client =
        std::make_unique<net::RequestClient>(one.place->endpoint, token_, deadline, channel_);
  } catch (const net::WrongToken&) {
    throw Error(ErrorCode::peer_lost, "parallel",
                fmt::format("server {} has ended: a process of another job listens at {} now",
                            server, one.place->endpoint.describe()),
                "nothing: the job continues without it, or from the newest checkpoint");
  }
}

std::vector<ServerChains::Link*> ServerChains::firsts() {
  std::vector<Link*> links;
  for (Chain& each : chains_) links.push_back(&each.front());
  return links;
}

std::vector<ServerChains::Link*> ServerChains::all() {
  std::vector<Link*> links;
  for (Chain& each : chains_)
    for (Link& link : each) links.push_back(&link);
  return links;
}

std::vector<ServerChains::Link*> ServerChains::all_but(const Link& one) {
  std::vector<Link*> links = all();
  std::erase(links, &one);
  return links;
}

std::vector<ServerChains::Link*> ServerChains::copies_of(int shard) {
  std::vector<Link*> links;
  for (Link& link : chain(shard)) links.push_back(&link);
  links.erase(links.begin());
  return links;
}

std::vector<ServerChains::Link*> ServerChains::all_copies() {
  std::vector<Link*> links = all();
  std::erase_if(links, [&](const Link* link) { return link == &first(link->shard); });
  return links;
}

std::vector<ServerChains::Link*> ServerChains::links_of(int server) {
  std::vector<Link*> links = all();
  std::erase_if(links, [server](const Link* link) { return link->server != server; });
  return links;
}

std::vector<ServerChains::Ride> ServerChains::rides_of(const std::vector<Link*>& whom,
                                                       const Make& make, const Rides& rides) {
  std::vector<Ride> all;
  std::map<int, std::vector<size_t>> riders;  // [server]
  for (size_t i = 0; rides && i < whom.size(); ++i)
    if (rides(*whom[i])) riders[whom[i]->server].push_back(i);
  for (size_t i = 0; i < whom.size(); ++i)
    if (!rides || !rides(*whom[i])) {
      all.push_back({std::exchange(riders[whom[i]->server], {}), {}});
      all.back().members.push_back(i);
    }
  for (auto& [server, alone] : riders)
    if (!alone.empty()) all.push_back({std::move(alone), {}});
  for (Ride& ride : all) {
    std::vector<net::Message> messages;
    for (const size_t i : ride.members) messages.push_back(make(*whom[i]));
    std::vector<RiddenRequest::Rider> before;
    for (net::Message& each : messages) {
      before.push_back({each.header, each.tensors.size()});
      std::ranges::move(each.tensors, std::back_inserter(ride.message.tensors));
    }
    before.pop_back();
    ride.message.header =
        before.empty() ? messages.back().header : with_riders(before, messages.back().header);
  }
  return all;
}

std::vector<net::Reply> ServerChains::ask(const char* name, const std::vector<Link*>& whom,
                                          const Make& make, const Places& places,
                                          Deadline deadline, const Rides& rides) {
  std::optional<Unreachable> unreachable;
  const auto guarded = [&](const Link& link, auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      const bool is_gone = process(link.server).client->is_lost();
      // A server that other workers left alone lacks their pushes.
      const bool lacks_pushes = error.code() == ErrorCode::corrupt && has_copies();
      if (!is_gone && !lacks_pushes) throw;
      if (!unreachable || is_gone) unreachable.emplace(error, link.server, !is_gone);
    }
  };
  const std::vector<Ride> all = rides_of(whom, make, rides);
  std::vector<std::optional<net::PendingReply>> pending(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Link& link = *whom[all[i].members.back()];
    guarded(link, [&] {
      pending[i] =
          process(link.server).client->start(all[i].message, places(link), deadline, name);
    });
  }
  std::vector<net::Reply> replies(whom.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<size_t>& members = all[i].members;
    if (!pending[i]) continue;
    guarded(*whom[members.back()], [&] {
      net::Reply reply = pending[i]->wait(deadline);
      const auto headers = split_replies(reply.header, members.size() - 1);
      for (size_t m = 0; m < members.size(); ++m) replies[members[m]].header = headers[m];
      replies[members.back()].tensors = std::move(reply.tensors);
    });
  }
  if (unreachable) throw Unreachable(*unreachable);
  return replies;
}

void ServerChains::require_clock() {
  const int server = first(0).server;
  if (is_lost_for_the_job(server))
    throw Unreachable(
        Error(ErrorCode::peer_lost, "parallel", fmt::format("server {} is lost", server)), server,
        /*it_answers=*/true);
}

void ServerChains::leave_deposed_clock() const {
  const int server = chain(0).front().server;
  throw Unreachable(
      Error(ErrorCode::peer_lost, "parallel",
            fmt::format("another server has the clock, and server {} is not lost", server),
            "nothing: the job continues without this process"),
      server, /*it_answers=*/true);
}

bool ServerChains::is_lost_for_the_job(int server) {
  const Process& one = process(server);
  if (!one.client) return false;
  return is_lost_ ? is_lost_(server, one.place->incarnation) : one.client->is_lost();
}

void ServerChains::drop_those_that_the_job_lost() {
  for (int server = 0; is_lost_ && server < shards(); ++server)
    if (is_lost_for_the_job(server)) drop(server);
  require_all_chains();
}

// A connection may end although its server lives, so the job decides. Until it does, the worker
// tries to reach the server again.
void ServerChains::settle(const Unreachable& unreachable, Deadline deadline) {
  const Deadline doubt = unreachable.answers ? Deadline::after(kDoubt) : deadline;
  const Deadline quiet = Deadline::after(kBeforeConnecting);
  for (;;) {
    Process& one = process(unreachable.server);
    if (!one.client) return;
    if (is_lost_for_the_job(unreachable.server)) {
      drop(unreachable.server);
      return require_all_chains();
    }
    if (deadline.expired() || doubt.expired()) throw Error(unreachable);
    if (look_) look_();
    if (!unreachable.answers && quiet.expired()) {
      try {
        return connect(unreachable.server, Deadline::after(kConnectAgain));
      } catch (const Error&) {  // It is not there now.
      }
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

void ServerChains::drop(int server) {
  process(server).client.reset();
  for (Chain& each : chains_)
    std::erase_if(each, [server](const Link& link) { return link.server == server; });
}

// "server 1 (10.0.0.2:4100; ps 1 on host b (pid 12) was lost: killed by signal 9 (SIGKILL))"
std::string ServerChains::describe_loss(int server) const {
  const auto& place = processes_[static_cast<size_t>(server)].place;
  if (!place) return fmt::format("server {}", server);
  const std::string why = why_lost_ ? why_lost_(server, place->incarnation) : "";
  return fmt::format("server {} ({}{}{})", server, place->endpoint.describe(),
                     why.empty() ? "" : "; ", why);
}

void ServerChains::require_all_chains() const {
  for (int shard = 0; shard < shards(); ++shard) {
    if (!chain(shard).empty()) continue;
    std::string lost;
    for (const int server : placement_.chain(shard))
      lost += (lost.empty() ? "" : ", ") + describe_loss(server);
    throw Error(
        ErrorCode::peer_lost, "parallel",
        fmt::format("no server has the pieces of server {} any more: lost are {}", shard, lost),
        "nothing: the job continues from the newest checkpoint");
  }
}

bool ServerChains::can_do_without(const std::set<int>& servers) const {
  return std::ranges::all_of(chains_, [&](const Chain& each) {
    return std::ranges::any_of(each,
                               [&](const Link& link) { return !servers.contains(link.server); });
  });
}

ServerPlaces ServerChains::in_use() const {
  ServerPlaces places;
  for (const Process& each : processes_) places.push_back(each.client ? each.place : std::nullopt);
  return places;
}

std::vector<int> ServerChains::missing() const {
  std::vector<int> servers;
  for (int server = 0; server < shards(); ++server)
    if (!processes_[static_cast<size_t>(server)].client) servers.push_back(server);
  return servers;
}

void ServerChains::adopt(int server, const ServerPlace& place, Deadline deadline) {
  process(server).place = place;
  connect(server, deadline);
  for (int shard = 0; shard < shards(); ++shard) {
    Chain links;
    for (const int each : placement_.chain(shard)) {
      const auto known = std::ranges::find(chain(shard), each, &Link::server);
      if (known != chain(shard).end())
        links.push_back(*known);
      else if (each == server)
        links.push_back({shard, server});
    }
    chain(shard) = std::move(links);
  }
}

bool ServerChains::has_lost_a_chain() const {
  return std::ranges::any_of(chains_, [](const Chain& each) { return each.empty(); });
}

}  // namespace trireme::servers
