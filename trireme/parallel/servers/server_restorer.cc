#include <trireme/parallel/servers/server_restorer.h>

#include <trireme/base/error.h>
#include <trireme/base/log.h>
#include <trireme/parallel/agreement.h>
#include <utility>

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};

}  // namespace

bool ServerRestorer::finds_one(const ServerClient& client) {
  const std::vector<int> missing = client.missing();
  const auto now = std::chrono::steady_clock::now();
  if (missing.empty() || !find_again_ || now < next_look_) return false;
  next_look_ = now + kBetweenLooks;
  for (const int server : missing)
    if (find_again_(server)) return true;
  return false;
}

void ServerRestorer::restore(ServerClient& client, Group& group, Deadline deadline) {
  use_those_of_first(client, group, deadline, [&] {
    if (!find_again_) return;
    for (const int server : client.missing()) {
      const std::optional<ServerPlace> place = find_again_(server);
      if (!place) continue;
      try {
        client.restore(server, *place, deadline);
        log_info("server {} has its pieces again", server);
      } catch (const Error& error) {
        log_warning("server {} could not get its pieces again: {}", server, error.what());
      }
    }
  });
}

void use_those_of_first(ServerClient& client, Group& group, Deadline deadline,
                        const std::function<void()>& before) {
  const auto in_use = [&] {
    if (before) before();
    Json all = Json::array();
    for (const std::optional<ServerPlace>& each : client.in_use())
      all.push_back(each ? Json{each->endpoint.describe(), each->incarnation} : Json());
    return all;
  };
  const Json of_first =
      before ? found_by_first_in_time(group, in_use) : found_by_first(group, in_use);
  if (group.rank() == 0) return;
  ServerPlaces places;
  for (const Json& each : of_first)
    if (each.is_null())
      places.emplace_back();
    else
      places.emplace_back(
          ServerPlace(net::parse_endpoint(each.at(0).get<std::string>()), each.at(1).get<int>()));
  client.use(places, deadline);
}

}  // namespace trireme
