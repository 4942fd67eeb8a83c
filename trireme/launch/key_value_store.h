// The job's key-value store. Pure: requests in, replies out; a get of a key that is not there yet
// is parked.
#pragma once
#include <trireme/launch/protocol.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trireme::launch {

class KeyValueStore {
 public:
  using Time = Membership::Time;
  using Messages = Membership::Messages;

  // One of set, get, find, add, compare_set, erase, count (protocol.h). The replies include those
  // of gets that this request has answered. Throws Error(corrupt) or a JSON exception for a request
  // it cannot read.
  Messages handle(int worker, const Json& request, Time now);
  // Ends the parked gets whose deadline has passed.
  Messages tick(Time now);
  // Ends the parked gets of the workers for which `why` has a reason.
  Messages fail_waits(const std::function<std::optional<Failure>(int worker)>& why);

 private:
  struct Wait {
    int worker = 0;
    int64_t request = 0;
    std::string key;
    Time since;
    Time deadline;
  };
  Json get(int worker, const Json& request, Time now);
  Json add(const Json& request, Messages& woken);
  Json compare_set(const Json& request, Messages& woken);
  void put(const std::string& key, std::string value, Messages& woken);

  std::map<std::string, std::string> values_;
  std::vector<Wait> waits_;  // In the order they came.
};

}  // namespace trireme::launch
