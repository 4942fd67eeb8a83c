// A worker's side of parameter servers: rounds of batches that workers compute at their own pace.
#include <trireme/parallel/servers/server_client_impl.h>
#include <string>

namespace trireme {

using servers::ServerCall;
using servers::ServerRequest;

namespace {

Json wish_of(const TurnWish& wish) {
  Json json = {{"round", true}, {"seen", wish.seen}};
  if (wish.stop) json["stop"] = true;
  if (wish.regroup) json["regroup"] = true;
  if (wish.meet) json["meet"] = true;
  return json;
}

}  // namespace

void ServerClient::open_round(int64_t id, int64_t leases, Deadline deadline) {
  tell_clocks(ServerCall::open_round, "round", Json{{"id", id}, {"leases", leases}}.dump(),
              deadline);
}

ServerTurn ServerClient::first_turn(const TurnWish& wish, Deadline deadline) {
  const std::string text = wish_of(wish).dump();
  return turn_in(chains_.without_the_lost(deadline, [&] {
    ServerRequest request = waiting_request(ServerCall::pull);
    request.text = text;
    return pull_from_clock({encode(request), {}}, text, deadline);
  }));
}

ServerTurn ServerClient::next_turn(const DoneLease& done, int64_t samples, const TurnWish& wish,
                                   Deadline deadline) {
  Json text = wish_of(wish);
  const std::string again = text.dump();
  text["lease"] = done.lease;
  text["loss"] = done.loss;
  text["rates"] = done.rates;
  return turn_in(push_and_pull(samples, text.dump(), again, deadline));
}

void ServerClient::skip(int64_t lease, int64_t samples, Deadline deadline) {
  const std::string text = Json{{"lease", lease}}.dump();
  chains_.without_the_lost(deadline, [&] {
    ServerRequest request = request_of(ServerCall::skip, chains_.first(0));
    request.text = text;
    request.samples = samples;
    ask_one("skipped batch", chains_.first(0), deadline, {encode(request), {}});
  });
}

ServerTurn ServerClient::turn_in(const Json& told) const {
  ServerTurn turn;
  if (told.contains("lease"))
    turn.lease = told["lease"].get<int64_t>();
  else
    turn.limit = told.at("limit"), turn.stop = told.at("stop"), turn.regroup = told.at("regroup");
  turn.has_more = told.at("more");
  for (const Json& each : told.at("counted")) turn.counted.push_back(servers::counted_in(each));
  return turn;
}

}  // namespace trireme
