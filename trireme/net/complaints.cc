#include <trireme/net/complaints.h>

#include <fmt/format.h>
#include <trireme/base/units.h>

namespace trireme::net {
namespace {

const std::string kOthers = "other addresses";

}  // namespace

void Complaints::add(const std::string& address, const std::string& line, Clock::time_point now) {
  tick(now);
  const bool known = periods_.contains(address) || periods_.size() < kAddresses;
  Period& period = periods_[known ? address : kOthers];
  if (period.failures == 0) period.end = now + kPeriod;
  if (++period.failures <= kLines) write_(line);
}

void Complaints::tick(Clock::time_point now) {
  for (auto at = periods_.begin(); at != periods_.end();) {
    if (now < at->second.end) {
      ++at;
      continue;
    }
    close(at->first, at->second);
    at = periods_.erase(at);
  }
}

int Complaints::failures(const std::string& address) const {
  const auto found = periods_.find(address);
  return found == periods_.end() ? 0 : found->second.failures;
}

void Complaints::close(const std::string& address, const Period& period) {
  if (period.failures <= kLines) return;
  write_(fmt::format("... and {} more from {} in the last {}", period.failures - kLines, address,
                     format_duration(kPeriod)));
}

void Complaints::close_all() {
  for (const auto& [address, period] : periods_) close(address, period);
  periods_.clear();
}

}  // namespace trireme::net
