// The lines that a listening socket writes to the log about dropped connections. Strangers must
// not fill the log: in each period an address gets a few lines, and then one line with a count.
#pragma once
#include <trireme/base/deadline.h>
#include <functional>
#include <map>
#include <string>

namespace trireme::net {

class Complaints {
 public:
  using Clock = Deadline::Clock;
  static constexpr int kLines = 5;  // The most lines for one address in a period.
  // The number of addresses with lines of their own. All other addresses have one entry.
  static constexpr size_t kAddresses = 16;
  static constexpr Milliseconds kPeriod{10000};

  // Each line is passed to `write`.
  explicit Complaints(std::function<void(const std::string&)> write) : write_(std::move(write)) {}
  ~Complaints() { close_all(); }

  void add(const std::string& address, const std::string& line, Clock::time_point now);
  // Ends the periods that are over, and writes their counts. Call it often.
  void tick(Clock::time_point now);
  // The number of connections from this address that failed in its current period.
  int failures(const std::string& address) const;

 private:
  struct Period {
    Clock::time_point end;
    int failures = 0;
  };
  void close(const std::string& address, const Period& period);
  void close_all();

  const std::function<void(const std::string&)> write_;
  std::map<std::string, Period> periods_;  // The current period of each address.
};

}  // namespace trireme::net
