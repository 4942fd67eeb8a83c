#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/monitor/event_json.h>
#include <trireme/train/ledger.h>
#include <algorithm>
#include <limits>
#include <set>

namespace trireme {
namespace {

using plan::DataPlanOptions;
using plan::DataPosition;

bool before(DataPosition a, DataPosition b) { return plan::is_before(a, b); }
bool equal(const DataPlanOptions& a, const DataPlanOptions& b) {
  return a.samples == b.samples && a.batch == b.batch && a.seed == b.seed &&
         a.shuffle == b.shuffle && a.drop_last == b.drop_last;
}
bool same_order(const DataPlanOptions& a, const DataPlanOptions& b) {
  const bool uses_seed = a.shuffle.shuffles() || a.shuffle.by_length;
  return a.samples == b.samples && a.shuffle == b.shuffle && (!uses_seed || a.seed == b.seed);
}

int64_t full_batch(const DataPlanOptions& data, int64_t consumed) {
  return std::min(data.batch, data.samples - consumed);
}
bool epoch_is_over(const DataPlanOptions& data, int64_t consumed) {
  const int64_t rest = data.samples - consumed;
  return rest == 0 || (data.drop_last && rest < data.batch);
}
DataPosition after(const DataPlanOptions& data, DataPosition at, int64_t samples) {
  const int64_t consumed = at.consumed + samples;
  return epoch_is_over(data, consumed) ? DataPosition{at.epoch + 1, 0}
                                       : DataPosition{at.epoch, consumed};
}
// Returns the end of an epoch that is entered at `consumed`.
int64_t end_of_epoch(const DataPlanOptions& data, int64_t consumed) {
  return data.drop_last ? consumed + (data.samples - consumed) / data.batch * data.batch
                        : data.samples;
}
// Counts the batches from one position to a later one on the same grid.
int64_t batches_between(const DataPlanOptions& data, DataPosition from, DataPosition to) {
  const auto batches = [&](int64_t samples) { return (samples + data.batch - 1) / data.batch; };
  if (from.epoch == to.epoch) return batches(to.consumed - from.consumed);
  const int64_t whole = batches(end_of_epoch(data, 0));
  return batches(end_of_epoch(data, from.consumed) - from.consumed) +
         (to.epoch - from.epoch - 1) * whole + batches(to.consumed);
}

// A limit, so that a damaged record cannot keep a process busy for ever.
constexpr int64_t kShown = 5;  // Samples that a message names.
constexpr int64_t kMostEpochs = 1'000'000;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::corrupt, "ledger", what, "the log of one run, as Trireme wrote it");
}

void check(const DataPlanOptions& data, DataPosition at) {
  if (data.samples < 1 || data.batch < 1)
    refuse(fmt::format("batches of {} out of {} samples", data.batch, data.samples));
  if (at.epoch < 0 || at.epoch >= kMostEpochs || at.consumed < 0 || at.consumed >= data.samples)
    refuse(fmt::format("position {} of epoch {}, where an epoch has {} samples", at.consumed,
                       at.epoch, data.samples));
}

std::vector<int64_t> order_of(const DataPlanOptions& data, int64_t epoch) {
  return plan::DataPlan({data.samples, data.samples, data.seed, data.shuffle, false})
      .global_batch({epoch, 0});
}

// Returns the samples at the places from `begin` to `end` of an epoch's order, or as many of them
// as some() needs.
std::vector<int64_t> first_of(const DataPlanOptions& data, int64_t epoch, int64_t begin,
                              int64_t end) {
  const int64_t count = std::min(end - begin, kShown + 1);
  return plan::DataPlan({data.samples, count, data.seed, data.shuffle, false})
      .global_batch({epoch, begin});
}

// Returns text such as "12, 993, 4, ...".
std::string some(const std::vector<int64_t>& samples) {
  const size_t shown = std::min(samples.size(), static_cast<size_t>(kShown));
  return fmt::format(
      "{}{}", fmt::join(samples.begin(), samples.begin() + static_cast<int64_t>(shown), ", "),
      samples.size() > shown ? ", ..." : "");
}

}  // namespace

Json SampleCount::to_json() const {
  return {
      {"expected", expected}, {"seen_once", seen_once}, {"lost", lost}, {"repeated", repeated}};
}

void Ledger::go_on(const monitor::ContinueRecord& from) {
  check(from.data, from.position);
  if (!begun_ && from.ledger.is_object())
    *this = from_json(from.ledger, "the record with which a run continues");
  if (!begun_ || before(from.position, begin_)) begin_ = from.position;
  begun_ = true;
  std::erase_if(runs_, [&](const Run& run) { return !before(run.from, from.position); });
  if (newest_ && !before(newest_->position, from.position)) newest_.reset();
  for (Run& run : runs_) {
    if (!before(from.position, run.to)) continue;
    run.to = from.position;
    run.steps_to = from.step;
  }
  // The run has the lists of which a checkpoint may have only the digests.
  for (DataPlanOptions& data : plans_)
    if (data.shuffle == from.data.shuffle) data.shuffle = from.data.shuffle;
  if (plans_.empty() || !equal(plans_.back(), from.data)) plans_.push_back(from.data);
}

void Ledger::commit(const monitor::CommitRecord& commit) {
  if (!begun_) refuse("a batch before any record of where the run begins");
  const DataPlanOptions& data = plans_.back();
  const DataPosition at = commit.position;
  check(data, at);
  if (commit.samples < 0 || commit.samples > data.samples - at.consumed)
    refuse(fmt::format("step {} used {} samples from position {} of {}", commit.step,
                       commit.samples, at.consumed, data.samples));
  int64_t shares = 0;
  for (const int64_t share : commit.shares) shares += share;
  if (shares != commit.samples)
    refuse(fmt::format("step {} used {} samples, and the ranks' shares make {}", commit.step,
                       commit.samples, shares));

  const bool is_full = commit.samples == full_batch(data, at.consumed);
  const int64_t step_before = commit.step - (commit.updated ? 1 : 0);
  const auto world_size = static_cast<int64_t>(commit.shares.size());
  const DataPosition next = is_full ? after(data, at, commit.samples)
                                    : DataPosition{at.epoch, at.consumed + commit.samples};
  Run* const last = runs_.empty() ? nullptr : &runs_.back();
  const bool follows = last && is_full && last->plan + 1 == plans_.size() &&
                       last->generation == commit.generation && last->world_size == world_size &&
                       last->to == at && last->steps_to == step_before;
  newest_ = commit;
  // Its samples are missing, which shows once later ones are used.
  if (commit.samples == 0) return;
  if (follows) {
    last->to = next;
    last->steps_to = commit.step;
  } else {
    runs_.push_back(
        {plans_.size() - 1, commit.generation, world_size, at, next, step_before, commit.step});
  }
}

// A run's part of one epoch: positions [begin, end) of the epoch's order.
struct Ledger::Use {
  int64_t begin = 0, end = 0;
  const DataPlanOptions* data = nullptr;
};
// Neighbouring positions that were used equally often.
struct Ledger::Stretch {
  int64_t begin = 0, end = 0, times = 0;
};
struct Ledger::Epoch {
  SampleCount count;
  bool finished = false;
  // The positions that are wrong, if all uses followed the same order.
  std::vector<Stretch> wrong;
  // The samples that are wrong, if the uses followed different orders.
  std::vector<int64_t> lost_samples, repeated_samples;
  // The uses followed different orders, and this ledger cannot compute the samples of one.
  bool is_unknown = false;
  // The data of its uses; null: there are none.
  const DataPlanOptions* data = nullptr;

  // The uses follow one order of the samples.
  void count_positions(const std::vector<Use>& uses, int64_t begin, int64_t limit);
  // They follow different orders. `none_may_lack` says that each sample must have been used.
  void count_samples(const std::vector<Use>& uses, int64_t number, bool none_may_lack);
};

int64_t Ledger::last_epoch() const {
  int64_t last = begin_.epoch;
  for (const Run& run : runs_)
    last = std::max(last, run.to.consumed > 0 ? run.to.epoch : run.to.epoch - 1);
  return last;
}

// Between two neighbouring ends of uses, all positions were used equally often.
void Ledger::Epoch::count_positions(const std::vector<Use>& uses, int64_t begin, int64_t limit) {
  std::set<int64_t> cuts{begin, limit};
  for (const Use& use : uses) cuts.insert({std::max(begin, use.begin), std::max(begin, use.end)});
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    const int64_t from = *cut, to = *std::next(cut);
    const auto times = std::count_if(uses.begin(), uses.end(), [&](const Use& use) {
      return use.begin <= from && to <= use.end;
    });
    (times == 0 ? count.lost : times == 1 ? count.seen_once : count.repeated) += to - from;
    if (times != 1) wrong.push_back({from, to, times});
  }
}

// The order changed half-way (another seed), so only the samples themselves can be compared.
void Ledger::Epoch::count_samples(const std::vector<Use>& uses, int64_t number,
                                  bool none_may_lack) {
  is_unknown =
      !std::ranges::all_of(uses, [](const Use& use) { return use.data->shuffle.is_known(); });
  if (is_unknown) {
    count.lost = count.expected;  // It is not proved that any was used once.
    return;
  }
  // The places of a mixture take a part of its numbers.
  const bool is_part = data->shuffle.mixture != nullptr;
  const plan::DataPlan plan(*data);
  std::vector<int> times(static_cast<size_t>(plan.order().numbers()), 0);
  for (const Use& use : uses) {
    const std::vector<int64_t> order = order_of(*use.data, number);
    for (int64_t at = use.begin; at < use.end; ++at)
      if (const auto sample = static_cast<size_t>(order[static_cast<size_t>(at)]);
          sample < times.size())
        ++times[sample];
  }
  for (size_t sample = 0; sample < times.size(); ++sample) {
    if (times[sample] == 1) ++count.seen_once;
    if (times[sample] > 1) repeated_samples.push_back(static_cast<int64_t>(sample));
    if (times[sample] == 0 && none_may_lack && !is_part)
      lost_samples.push_back(static_cast<int64_t>(sample));
  }
  count.repeated = static_cast<int64_t>(repeated_samples.size());
  count.lost = std::max<int64_t>(0, count.expected - count.seen_once - count.repeated);
}

// The uses of an epoch's samples, in the order of the runs.
std::vector<Ledger::Use> Ledger::uses_of(int64_t number) const {
  std::vector<Use> uses;
  for (const Run& run : runs_) {
    if (run.from.epoch > number || run.to.epoch < number) continue;
    const int64_t begin = run.from.epoch == number ? run.from.consumed : 0;
    const int64_t end =
        run.to.epoch == number ? run.to.consumed : end_of_epoch(data_of(run), begin);
    if (begin != end) uses.push_back({begin, end, &data_of(run)});
  }
  return uses;
}

Ledger::Epoch Ledger::epoch(int64_t number) const {
  Epoch epoch;
  // The data of the run that left this epoch. Its batch may have been larger than the rest that it
  // dropped.
  const DataPlanOptions* left_by = nullptr;
  for (const Run& run : runs_) {
    // A run that comes to a later epoch has left this one.
    epoch.finished = epoch.finished || run.from.epoch > number || run.to.epoch > number;
    if (run.from == DataPosition{number + 1, 0} && left_by == nullptr) left_by = &data_of(run);
  }
  const std::vector<Use> uses = uses_of(number);
  const int64_t begin = number == begin_.epoch ? begin_.consumed : 0;
  if (uses.empty()) {
    if (epoch.finished && !plans_.empty()) {
      epoch.wrong.push_back({begin, plans_.back().samples, 0});
      epoch.count.expected = epoch.count.lost = plans_.back().samples - begin;
    }
    return epoch;
  }
  epoch.data = uses.back().data;
  int64_t reached = begin;
  for (const Use& use : uses) reached = std::max(reached, use.end);
  const auto drops_rest = [&](const DataPlanOptions* data) {
    return data && data->drop_last && epoch_is_over(*data, reached);
  };
  const bool is_whole = epoch.finished && !drops_rest(epoch.data) && !drops_rest(left_by);
  const int64_t limit = is_whole ? epoch.data->samples : reached;
  epoch.count.expected = limit - begin;
  const bool one_order = std::ranges::all_of(
      uses, [&](const Use& use) { return same_order(*uses.front().data, *use.data); });
  if (one_order)
    epoch.count_positions(uses, begin, limit);
  else
    epoch.count_samples(uses, number, /*none_may_lack=*/is_whole && begin == 0);
  return epoch;
}

SampleCount Ledger::samples() const {
  SampleCount sum;
  if (runs_.empty()) return sum;
  for (int64_t number = begin_.epoch; number <= last_epoch(); ++number) {
    const SampleCount count = epoch(number).count;
    sum.expected += count.expected;
    sum.seen_once += count.seen_once;
    sum.lost += count.lost;
    sum.repeated += count.repeated;
  }
  return sum;
}

int64_t Ledger::finished_epochs() const {
  int64_t finished = 0;
  for (int64_t number = begin_.epoch; !runs_.empty() && number <= last_epoch(); ++number)
    finished += epoch(number).finished ? 1 : 0;
  return finished;
}

// Returns ", by steps 71 and 75": the steps that used this position.
std::string Ledger::steps_at(int64_t epoch, int64_t position) const {
  std::vector<std::string> steps;
  for (const Run& run : runs_) {
    const DataPlanOptions& data = data_of(run);
    const DataPosition at{epoch, position};
    if (before(at, run.from) || !before(at, run.to)) continue;
    const bool none_skipped =
        run.steps_to - run.step_before == batches_between(data, run.from, run.to);
    const int64_t begin = run.from.epoch == epoch ? run.from.consumed : 0;
    const DataPosition of_batch{epoch, position - (position - begin) % data.batch};
    steps.push_back(none_skipped ? fmt::format("{}", run.step_before + 1 +
                                                         batches_between(data, run.from, of_batch))
                                 : fmt::format("{} to {}", run.step_before + 1, run.steps_to));
  }
  return steps.empty() ? ""
                       : fmt::format(", by step{} {}", steps.size() > 1 ? "s" : "",
                                     fmt::join(steps, " and "));
}

std::vector<std::string> Ledger::errors(size_t most) const {
  std::vector<std::string> errors;
  size_t more = 0;
  const auto add = [&](std::string error) {
    errors.size() < most ? errors.push_back(std::move(error)) : void(++more);
  };
  for (int64_t number = begin_.epoch; !runs_.empty() && number <= last_epoch(); ++number) {
    const Epoch epoch = this->epoch(number);
    for (const Stretch& stretch : epoch.wrong) {
      std::string which;
      if (epoch.data && epoch.data->shuffle.is_known())
        which = fmt::format(" (samples {})",
                            some(first_of(*epoch.data, number, stretch.begin, stretch.end)));
      const std::string where = fmt::format("epoch {}: positions {} to {} of its order{}", number,
                                            stretch.begin, stretch.end - 1, which);
      add(stretch.times == 0 ? where + " were used by no step"
                             : fmt::format("{} were used {} times{}", where, stretch.times,
                                           steps_at(number, stretch.begin)));
    }
    if (epoch.is_unknown)
      add(
          fmt::format("epoch {}: its order changed on the way, and this record has only digests "
                      "of the lists from which its samples follow",
                      number));
    if (!epoch.lost_samples.empty())
      add(fmt::format("epoch {}: {} samples ({}) were used by no step", number,
                      epoch.lost_samples.size(), some(epoch.lost_samples)));
    if (!epoch.repeated_samples.empty())
      add(fmt::format("epoch {}: {} samples ({}) were used more than once", number,
                      epoch.repeated_samples.size(), some(epoch.repeated_samples)));
  }
  for (size_t i = 1; i < runs_.size(); ++i) {
    if (runs_[i].step_before != runs_[i - 1].steps_to)
      add(fmt::format("after step {} comes step {}", runs_[i - 1].steps_to,
                      runs_[i].step_before + 1));
  }
  if (more > 0) errors.push_back(fmt::format("and {} more", more));
  return errors;
}

Json Ledger::to_json() const {
  const auto pair = [](DataPosition at) { return Json::array({at.epoch, at.consumed}); };
  Json plans = Json::array(), runs = Json::array();
  for (const DataPlanOptions& data : plans_)
    plans.push_back({data.samples, data.batch, data.seed, data.shuffle.to_json(), data.drop_last});
  for (const Run& run : runs_)
    runs.push_back({run.plan, run.generation, run.world_size, pair(run.from), pair(run.to),
                    run.step_before, run.steps_to});
  Json json = {{"begin", pair(begin_)}, {"plans", plans}, {"runs", runs}};
  if (newest_) json["newest"] = monitor::to_json(*newest_);
  return json;
}

Ledger Ledger::from_json(const Json& json, const std::string& where) {
  Ledger ledger;
  const auto position = [](const Json& pair) {
    return DataPosition{pair.at(0).get<int64_t>(), pair.at(1).get<int64_t>()};
  };
  try {
    ledger.begin_ = position(json.at("begin"));
    for (const Json& data : json.at("plans")) {
      ledger.plans_.push_back({data.at(0).get<int64_t>(), data.at(1).get<int64_t>(),
                               data.at(2).get<uint64_t>(),
                               plan::OrderOptions::from_json(data.at(3)), data.at(4).get<bool>()});
      check(ledger.plans_.back(), {});
    }
    for (const Json& run : json.at("runs")) {
      ledger.runs_.push_back({run.at(0).get<size_t>(), run.at(1).get<int64_t>(),
                              run.at(2).get<int64_t>(), position(run.at(3)), position(run.at(4)),
                              run.at(5).get<int64_t>(), run.at(6).get<int64_t>()});
      const Run& read = ledger.runs_.back();
      if (read.plan >= ledger.plans_.size() || !before(read.from, read.to))
        refuse("runs that have no plan or no length");
      check(ledger.data_of(read), read.from);
      if (read.to.consumed < 0 || read.to.consumed >= ledger.data_of(read).samples ||
          read.to.epoch > kMostEpochs)
        refuse("a run that ends outside the data");
    }
    if (json.contains("newest"))
      ledger.newest_ = std::get<monitor::CommitRecord>(monitor::event_of(json["newest"]).value());
  } catch (const std::exception& error) {
    throw Error(ErrorCode::corrupt, "ledger",
                fmt::format("{}: the ledger of samples cannot be read: {}", where, brief(error)),
                "a checkpoint or log as Trireme wrote it");
  }
  ledger.begun_ = !ledger.plans_.empty();
  return ledger;
}

}  // namespace trireme
