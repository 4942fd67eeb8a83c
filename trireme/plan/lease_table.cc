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

// Leases before it that nobody has had are free now.
bool LeaseTable::is_free(int64_t lease) {
  if (lease < 0 || lease >= limit_) return false;
  while (next_ <= lease) returned_.insert(next_++);
  return returned_.contains(lease);
}

bool LeaseTable::claim(int worker, int64_t lease) {
  if (has(worker, lease)) return true;
  if (!is_free(lease)) return false;
  give_back(worker);
  returned_.erase(lease);
  taken_[worker] = lease;
  return true;
}

bool LeaseTable::finish(int64_t lease) {
  if (lease < 0 || lease >= limit_)
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("lease {} of a round of {} is done", lease, limit_));
  const bool was_free = is_free(lease);
  if (was_free) returned_.erase(lease);
  const auto erased =
      std::erase_if(taken_, [&](const auto& each) { return each.second == lease; });
  if (!was_free && erased == 0) return false;
  ++done_;
  return true;
}

void LeaseTable::give_back(int worker) {
  if (const auto own = taken_.extract(worker); !own.empty()) returned_.insert(own.mapped());
}

void LeaseTable::give_back_all() {
  for (const auto& [worker, lease] : taken_) returned_.insert(lease);
  taken_.clear();
}

// A table that knows of fewer leases than another one frees those in between.
void LeaseTable::stop_at(int64_t limit) {
  while (next_ < limit) returned_.insert(next_++);
  returned_.erase(returned_.lower_bound(limit), returned_.end());
  std::erase_if(taken_, [limit](const auto& each) { return each.second >= limit; });
  next_ = limit_ = limit;
}

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
