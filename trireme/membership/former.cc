#include <trireme/membership/former.h>

namespace trireme::membership {
namespace {

std::chrono::milliseconds milliseconds(const Json& count) {
  return std::chrono::milliseconds(count.get<int64_t>());
}

}  // namespace

Json Former::to_json() const {
  Json places = Json::array();
  for (const Place& place : members)
    places.push_back({place.process, place.standby.host, place.standby.port});
  Json text = {{"coordinator", coordinator.describe()},
               {"number", generation},
               {"members", std::move(places)},
               {"workers", {roster.minimum, roster.maximum, roster.target}},
               {"nodes", roster.nodes},
               {"by_claim", roster.by_claim},
               {"unit", {roster.unit, roster.shape}},
               {"roster_ms",
                {roster.first_timeout.count(), roster.regroup_timeout.count(),
                 roster.refill_timeout.count()}},
               {"membership_ms",
                {membership.join_timeout.count(), membership.heartbeat_timeout.count(),
                 membership.stall_timeout.count()}},
               {"straggler_factor", membership.straggler.factor},
               {"history", history},
               {"unfinished", unfinished.to_json()}};
  if (!roles.empty()) text["roles"] = roles.to_json();
  return text;
}

Former Former::from_json(const Json& text) {
  Former former;
  former.coordinator = net::parse_endpoint(text.at("coordinator").get<std::string>());
  former.generation = text.at("number");
  for (const Json& place : text.at("members"))
    former.members.push_back({place.at(0), {place.at(1), place.at(2)}});
  const Json &workers = text.at("workers"), &roster = text.at("roster_ms"),
             &membership = text.at("membership_ms");
  former.roster = {.minimum = workers.at(0),
                   .maximum = workers.at(1),
                   .target = workers.at(2),
                   .first_timeout = milliseconds(roster.at(0)),
                   .regroup_timeout = milliseconds(roster.at(1)),
                   .refill_timeout = milliseconds(roster.at(2)),
                   .nodes = text.at("nodes"),
                   .by_claim = text.at("by_claim"),
                   .unit = text.at("unit").at(0),
                   .shape = text.at("unit").at(1)};
  former.membership.workers = static_cast<int>(former.members.size());
  former.membership.generation = former.generation;
  former.membership.join_timeout = milliseconds(membership.at(0));
  former.membership.heartbeat_timeout = milliseconds(membership.at(1));
  former.membership.stall_timeout = milliseconds(membership.at(2));
  former.membership.straggler.factor = text.at("straggler_factor");
  former.history = text.at("history");
  former.unfinished = UnfinishedSteps::from_json(text.at("unfinished"));
  if (text.contains("roles")) former.roles = Roles::from_json(text["roles"]);
  return former;
}

}  // namespace trireme::membership
