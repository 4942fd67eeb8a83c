#include <trireme/parallel/servers/tables/row_table.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/base/units.h>
#include <algorithm>
#include <limits>

namespace trireme {
namespace {

constexpr int64_t kMostSeen = 255;
constexpr size_t kSeenCounters = size_t{1} << 20;
constexpr size_t kEvictedPart = 8;  // Of the rows, at once.

[[noreturn]] void refuse_table(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

}  // namespace

void check(const TableOptions& options, const plan::TableSpec& table) {
  check(options.optimizer);
  check(options.init);
  const auto require = [&](bool holds, std::string_view option, int64_t value,
                           const std::string& rule) {
    if (!holds)
      refuse_table(fmt::format("{} of table '{}' is {}", option, table.name, value), rule);
  };
  require(options.admit_after >= 1 && options.admit_after <= kMostSeen, "admit_after",
          options.admit_after, "1 to 255");
  require(options.evict_unused >= 0, "evict_unused", options.evict_unused, "0 or more");
  require(options.budget_bytes >= 0, "budget_bytes", options.budget_bytes, "0 or more");
  require(!options.evicts_least_recent || options.budget_bytes > 0, "budget_bytes",
          options.budget_bytes, "a budget, at which the least recent rows are evicted");
}

Json RowTableFacts::to_json() const {
  return {{"rows", rows}, {"bytes", bytes},     {"pulled", pulled},  {"pushed", pushed},
          {"made", made}, {"evicted", evicted}, {"dropped", dropped}};
}

namespace servers {

SeenRows::SeenRows(int64_t admit_after)
    : admit_after_(admit_after), counters_(admit_after > 1 ? kSeenCounters : 0) {}

bool SeenRows::admits(int64_t row) {
  if (counters_.empty()) return true;
  const uint64_t mixed = mix64(static_cast<uint64_t>(row));
  uint8_t& one = counters_[mixed % kSeenCounters];
  uint8_t& two = counters_[(mixed >> 32) % kSeenCounters];
  const int64_t seen = std::min(one, two) + int64_t{1};
  // Only the smaller one grows, so that a frequent row takes fewer counts of others.
  for (uint8_t* counter : {&one, &two})
    *counter = static_cast<uint8_t>(std::clamp<int64_t>(seen, *counter, kMostSeen));
  return seen >= admit_after_;
}

RowTable::RowTable(plan::TableSpec spec, TableOptions options)
    : spec_(std::move(spec)),
      options_(options),
      key_(key_of_table(spec_.name)),
      slabs_(floats_of_row(options.optimizer.rule, spec_.width)),
      seen_(options.admit_after) {
  check(options_, spec_);
  most_rows_ = most_rows();
}

// The index doubles, so the most rows are those that fit beside one of its sizes.
size_t RowTable::most_rows() const {
  if (options_.budget_bytes == 0) return RowIndex::kNoSlot;
  const auto budget = static_cast<size_t>(options_.budget_bytes);
  const auto fits = [&](size_t rows) {
    return rows * slabs_.bytes_of_slot() + index_.bytes_for(rows) + seen_.bytes() <= budget;
  };
  size_t rows = 0;  // The largest number that fits; the bytes grow with the rows.
  for (size_t step = std::min<size_t>(budget / slabs_.bytes_of_slot() + 1, RowIndex::kNoSlot);
       step > 0; step /= 2)
    while (fits(rows + step)) rows += step;
  return rows;
}

RowTableFacts RowTable::facts() const {
  RowTableFacts facts = facts_;
  facts.rows = static_cast<int64_t>(index_.size());
  facts.bytes = static_cast<int64_t>(index_.size() * slabs_.bytes_of_slot() + index_.bytes() +
                                     seen_.bytes());
  return facts;
}

void RowTable::require_room(size_t rows, uint32_t now) {
  const size_t wanted = index_.size() + rows;
  if (wanted <= most_rows_) return;
  if (options_.evicts_least_recent && rows <= most_rows_) evict(wanted - most_rows_, now);
  if (index_.size() + rows <= most_rows_) return;
  refuse_table(
      fmt::format("table '{}' has {} rows of {} bytes, and {} more do not fit into its budget of "
                  "{}, which holds {}{}",
                  spec_.name, index_.size(), slabs_.bytes_of_slot(), rows,
                  format_bytes(options_.budget_bytes), most_rows_,
                  options_.evicts_least_recent ? "; the others were used in this step" : ""),
      options_.evicts_least_recent
          ? "a larger budget_bytes, or smaller batches"
          : "a larger budget_bytes, evicts_least_recent, evict_unused, or "
            "admit_after");
}

void RowTable::remove(const RowIndex::Entry& entry) {
  index_.remove(entry.row);
  slabs_.give_back(entry.slot);
  ++facts_.evicted;
}

// More rows than needed, so that not every new row looks through all of them. Rows that this
// version of the table has used stay. Of two that were used at the same time the lower row goes.
void RowTable::evict(size_t rows, uint32_t now) {
  std::vector<RowIndex::Entry> old = index_.entries();
  std::erase_if(old, [now](const auto& entry) { return entry.used == now; });
  const size_t count = std::min(old.size(), std::max(rows, index_.size() / kEvictedPart));
  const auto is_older = [](const RowIndex::Entry& a, const RowIndex::Entry& b) {
    return a.used != b.used ? a.used < b.used : a.row < b.row;
  };
  if (count < old.size())
    std::ranges::nth_element(old, old.begin() + static_cast<std::ptrdiff_t>(count), is_older);
  for (size_t i = 0; i < count; ++i) remove(old[i]);
}

void RowTable::evict_unused(uint32_t now) {
  if (options_.evict_unused == 0) return;
  if (now - looked_ < std::max<int64_t>(1, options_.evict_unused / 8)) return;
  looked_ = now;
  for (const RowIndex::Entry& entry : index_.entries())
    if (int64_t{now} - int64_t{entry.used} >= options_.evict_unused) remove(entry);
}

float* RowTable::add(int64_t row, uint32_t now) {
  if (const uint32_t there = index_.find(row); there != RowIndex::kNoSlot) return slabs_.at(there);
  const uint32_t slot = slabs_.take();
  float* const place = slabs_.at(slot);
  initial_row(options_.init, key_, row, place, spec_.width);
  begin_row(options_.optimizer, place, spec_.width);
  index_.add(row, slot, now);
  ++facts_.made;
  return place;
}

void RowTable::pull(std::span<const int64_t> rows, uint32_t now, bool peeks, float* to) {
  slots_.resize(rows.size());
  places_.resize(rows.size());
  if (peeks)
    std::as_const(index_).find(rows, slots_.data());
  else
    index_.find(rows, slots_.data(), now);
  std::vector<size_t> missing, admitted;
  for (size_t i = 0; i < rows.size(); ++i)
    if (slots_[i] == RowIndex::kNoSlot)
      (!peeks && seen_.admits(rows[i]) ? admitted : missing).push_back(i);
    else
      places_[i] = slabs_.at(slots_[i]);
  if (!admitted.empty()) require_room(admitted.size(), now);
  for (const size_t i : admitted) places_[i] = add(rows[i], now);
  initial_.resize(missing.size() * static_cast<size_t>(spec_.width));
  float* initial = initial_.data();
  for (const size_t i : missing) {
    initial_row(options_.init, key_, rows[i], initial, spec_.width);
    places_[i] = initial;
    initial += spec_.width;
  }
  gather_rows(places_.data(), rows.size(), spec_.width, to);
  if (!peeks) facts_.pulled += static_cast<int64_t>(rows.size());
}

void RowTable::push(std::span<const int64_t> rows, const float* gradients, uint32_t now) {
  slots_.resize(rows.size());
  places_.clear();
  gradients_.clear();
  index_.find(rows, slots_.data(), now);
  const bool makes = grows_without_limits(options_);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (slots_[i] == RowIndex::kNoSlot && !makes) continue;
    places_.push_back(slots_[i] == RowIndex::kNoSlot ? add(rows[i], now) : slabs_.at(slots_[i]));
    gradients_.push_back(gradients + i * static_cast<size_t>(spec_.width));
  }
  facts_.pushed += static_cast<int64_t>(rows.size());
  facts_.dropped += static_cast<int64_t>(rows.size() - places_.size());
  update_rows(options_.optimizer, places_.data(), gradients_.data(), places_.size(), spec_.width);
}

std::vector<int64_t> RowTable::rows() const {
  std::vector<int64_t> rows;
  rows.reserve(index_.size());
  for (const RowIndex::Entry& entry : index_.entries()) rows.push_back(entry.row);
  std::ranges::sort(rows);
  return rows;
}

const float* RowTable::find(int64_t row) const {
  const uint32_t slot = index_.find(row);
  return slot == RowIndex::kNoSlot ? nullptr : slabs_.at(slot);
}

float* RowTable::make(int64_t row, uint32_t now) {
  if (const uint32_t slot = index_.find(row); slot != RowIndex::kNoSlot) return slabs_.at(slot);
  require_room(1, now);
  return add(row, now);
}

}  // namespace servers
}  // namespace trireme
