// The job's key-value store. Pure: requests in, replies out. A get of a missing key waits until a
// worker sets the key.
#pragma once
#include <trireme/membership/protocol.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trireme::membership {

class KeyValueStore {
 public:
  using Time = Membership::Time;
  using Messages = Membership::Messages;

  // Handles one of set, get, find, add, compare_set, erase, count (protocol.h). The replies
  // include those to waiting gets that this request answers. Throws Error(corrupt) or a JSON
  // exception for a request that it cannot read.
  Messages handle(int worker, const Json& request, Time now);
  // The worker or side task is gone: the keys that it set last go with it.
  void forget_keys_of(int worker);
  // A new generation begins. Keys that side tasks have set stay, and so do their waits.
  void begin_generation();
  // Ends the waiting gets whose deadline has passed.
  Messages tick(Time now);
  // Ends the waiting gets of the workers for which `why` returns a failure.
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
  Json add(int worker, const Json& request, Messages& woken);
  Json compare_set(int worker, const Json& request, Messages& woken);
  void put(int worker, const std::string& key, std::string value, Messages& woken);

  std::map<std::string, std::string> values_;
  std::map<std::string, int> owners_;  // The worker or side task that set each key last.
  std::vector<Wait> waits_;            // The oldest comes first.
};

}  // namespace trireme::membership
