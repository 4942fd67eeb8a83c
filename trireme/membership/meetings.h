// The meetings of all workers: barriers, and comparisons of facts. Pure: time is a parameter.
#pragma once
#include <trireme/membership/protocol.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace trireme::membership {

class Meetings {
 public:
  using Time = Membership::Time;
  using Messages = Membership::Messages;

  struct Arrival {
    int64_t request = 0;
    Facts facts;  // A barrier has none.
    Time since;
    Time deadline;
  };

  // `name_of` names a worker in messages.
  Meetings(int workers, std::function<std::string(int worker)> name_of)
      : workers_(workers), name_of_(std::move(name_of)) {}

  // `where` names the meeting in messages, as in "barrier 'end'". When the last worker has
  // arrived, the facts are compared and all get their answers. The meeting is over then, and its
  // name may be used again.
  Messages arrive(const std::string& where, int worker, Arrival arrival);
  // Ends every open meeting.
  Messages fail_all(const std::function<Failure(const std::string& where)>& why);
  // Ends the waits whose deadline has passed. The others continue.
  Messages tick(Time now);

 private:
  using Arrivals = std::map<int, Arrival>;
  std::optional<Failure> compare(const std::string& where, const Arrivals& arrivals) const;
  std::string describe_missing(const Arrivals& arrivals) const;

  const int workers_;
  const std::function<std::string(int)> name_of_;
  std::map<std::string, Arrivals> open_;
};

}  // namespace trireme::membership
