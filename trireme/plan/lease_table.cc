#include <trireme/plan/lease_table.h>

#include <fmt/format.h>
#include <trireme/base/error.h>

namespace trireme::plan {

LeaseTable::LeaseTable(int64_t leases) : limit_(leases) {
  if (leases < 0)
    throw Error(ErrorCode::invalid_argument, "plan", fmt::format("a round of {} leases", leases));
}

std::optional<int64_t> LeaseTable::lease_of(int worker) const {
  const auto found = taken_.find(worker);
  return found == taken_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int64_t> LeaseTable::take(int worker) {
  if (const auto own = lease_of(worker)) return own;
  if (!returned_.empty()) return taken_[worker] = returned_.extract(returned_.begin()).value();
  if (next_ == limit_) return std::nullopt;
  return taken_[worker] = next_++;
}

bool LeaseTable::has(int worker, int64_t lease) const { return lease_of(worker) == lease; }

void LeaseTable::finish(int worker, int64_t lease) {
  if (!has(worker, lease))
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("worker {} ends lease {} of {}, which it does not have", worker, lease,
                            limit_));
  taken_.erase(worker);
  ++done_;
}

void LeaseTable::give_back(int worker) {
  if (const auto own = taken_.extract(worker); !own.empty()) returned_.insert(own.mapped());
}

void LeaseTable::give_back_all() {
  for (const auto& [worker, lease] : taken_) returned_.insert(lease);
  taken_.clear();
}

void LeaseTable::stop() { limit_ = next_; }

Json LeaseTable::to_json() const {
  Json taken = Json::array();
  for (const auto& [worker, lease] : taken_) taken.push_back({worker, lease});
  return {{"limit", limit_},
          {"next", next_},
          {"done", done_},
          {"taken", std::move(taken)},
          {"returned", returned_}};
}

LeaseTable LeaseTable::from_json(const Json& json) {
  LeaseTable table(json.at("limit").get<int64_t>());
  table.next_ = json.at("next");
  table.done_ = json.at("done");
  for (const Json& each : json.at("taken")) table.taken_[each.at(0).get<int>()] = each.at(1);
  table.returned_ = json.at("returned").get<std::set<int64_t>>();
  return table;
}

}  // namespace trireme::plan
