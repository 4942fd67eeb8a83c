// A request from outside a running job for another consistency of its parameter servers, and the
// answer. Both are values of the job's key-value store. Pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/push_clock.h>
#include <string>

namespace trireme::plan {

// Its value is the last request.
inline const std::string kConsistencyRequestKey = "consistency request";
// Its value is the answer to it, from the server that has the clock. It is there once workers have
// begun, with an empty id if nobody has asked.
inline const std::string kConsistencyAnswerKey = "consistency answer";

struct ConsistencyRequest {
  std::string id;  // No two requests have the same one.
  ConsistencyOptions options;
  Json to_json() const;
  static ConsistencyRequest from_json(const Json& json);  // Throws Error, nlohmann's errors.
};

struct ConsistencyAnswer {
  std::string id;                  // That of the request.
  ConsistencyOptions before = {};  // The consistency until then.
  std::string refused = {};        // The reason; empty if the change was made.
  std::string remedy = {};
  Json to_json() const;
  static ConsistencyAnswer from_json(const Json& json);  // Throws Error, nlohmann's errors.
};

// "stale with a bound of 2 steps", "sync with 1 backup worker"
std::string describe(const ConsistencyOptions& options);

}  // namespace trireme::plan
