// A round: each rank computes whole batches at its own pace (parallel/own_pace.h).
#include <trireme/base/hash.h>
#include <trireme/train/replica_run_impl.h>
#include <algorithm>
#include <limits>
#include <utility>

namespace trireme {
namespace {

constexpr int64_t kFarLease = 64;  // A rank that was away for so many leases says nothing.
constexpr size_t kKeptRecords = 4096;

}  // namespace

// A batch counts when the servers have its push, in the order of their updates, which is the same
// on all ranks. When the round ends, all of its batches count, so the position of the data is as
// if one rank had computed them one after the other.
void ReplicaRun::Impl::round() {
  // Evaluations and saves after the last round belong to the servers' state as it left it.
  group().barrier();
  of_round_.clear();
  before_round_ = progress_;
  before_round_->guard = guard_.state();
  const std::vector<plan::DataPosition> positions = positions_of_round();
  counted_at_ = std::chrono::steady_clock::now();
  RoundRequest request;
  request.id = progress_.step + progress_.skipped_steps;
  request.batches = std::ssize(positions);
  request.passes = generation_->passes;
  request.load = [&](int64_t number) {
    return load_for_round(positions[static_cast<size_t>(number)], request.id + number);
  };
  request.rates = [this] { return course_->rates(course_->factor(progress_, resize_)); };
  int64_t counted = 0;
  request.counted = [&](const CountedPass& pass) {
    const bool was_announced = announced_.id == request.id && counted < announced_.batches;
    ++counted;
    count(pass, positions[static_cast<size_t>(pass.number)], was_announced);
    if (!was_announced) announced_ = {request.id, counted};
  };
  const RoundEnd end = engine().own_pace()->round(request);
  before_round_.reset();
  progress_.stopping = end.stop;
  if (end.batches > 0) {
    Pass last;
    last.batch.position = positions[static_cast<size_t>(end.batches) - 1];
    last.batch.next = progress_.position = generation_->loader().plan().next(last.batch.position);
    last.outcome.updated = true;
    after_pass(last);
  } else if (progress_.stopping) {
    save_at_the_end();
    announce_saved();
  }
  if (end.regroup && !is_over()) standing_.enter(Standing::regrouping);
}

// To the end of the epoch, of the run, or to the next checkpoint.
std::vector<plan::DataPosition> ReplicaRun::Impl::positions_of_round() {
  int64_t most = std::numeric_limits<int64_t>::max();
  if (options_.steps >= 0) most = options_.steps - progress_.step;
  if (const int64_t every = options_.checkpoint.every_steps; every > 0)
    most = std::min(most, every - progress_.step % every);
  std::vector<plan::DataPosition> positions;
  const plan::DataPlan& data = generation_->loader().plan();
  for (plan::DataPosition at = progress_.position;
       at.epoch == progress_.position.epoch && std::ssize(positions) < most; at = data.next(at))
    positions.push_back(at);
  return positions;
}

// The random numbers of a batch depend on its number alone, whichever rank computes it. The next
// lease will probably be as far away as this one was from the last one.
Batch ReplicaRun::Impl::load_for_round(plan::DataPosition position, int64_t number) {
  step_phase(Phase::data);
  model_.random().reseed(
      mix64(options_.seed, static_cast<uint64_t>(number + 1), static_cast<uint64_t>(0)));
  Loader& loader = generation_->loader();
  const int64_t distance = number - std::exchange(newest_lease_, number);
  loader.read_ahead_every(distance > 0 && distance <= kFarLease ? distance : group().size());
  loader.seek(position);
  return loader.next();
}

void ReplicaRun::Impl::count(const CountedPass& pass, plan::DataPosition position,
                             bool was_announced) {
  Pass counted;
  counted.batch.position = position;
  counted.batch.next = progress_.position;  // It moves at the end of the round.
  counted.batch.global_size = pass.samples;
  counted.outcome.loss = pass.loss.value_or(std::numeric_limits<double>::quiet_NaN());
  counted.outcome.samples = pass.samples;
  counted.outcome.updated = pass.loss.has_value();
  if (!pass.loss) counted.outcome.nonfinite_ranks = {pass.rank};
  const double factor = course_->factor(progress_, resize_);
  counted.rate = course_->base_rate() * factor;
  const GuardVerdict verdict = judge(counted);
  if (verdict.action == GuardAction::stop) throw verdict.error();

  const auto now = std::chrono::steady_clock::now();
  counted.seconds = std::chrono::duration<double>(now - std::exchange(counted_at_, now)).count();
  progress_.count(progress_.position, counted.outcome.updated, counted.outcome.loss);
  const auto ranks =
      std::max<size_t>(static_cast<size_t>(group().size()), static_cast<size_t>(pass.rank) + 1);
  monitor::CommitRecord commit{
      world_.identity().generation, progress_.step,         position, pass.samples,
      std::vector<int64_t>(ranks),  counted.outcome.updated};
  commit.shares[static_cast<size_t>(pass.rank)] = pass.samples;
  progress_.ledger.commit(commit);
  listeners_.tell(commit);
  keep_for_next_rank_0(commit);
  keep_for_next_rank_0(pass.loss ? monitor::Event(step_record_of(counted))
                                 : monitor::Event(skip_record_of(counted)));
  if (++generation_->batches == 1) world_.tell_first_step(progress_.step, facts_of_generation());
  if (!was_announced) return announce(counted, verdict.reason);
  if (took_over_) listeners_.tell_again(of_round_.back());
}

// Each rank hears of the batches that count when it asks for its next one. So a rank 0 that is
// lost may not have written what others know, also after the round.
void ReplicaRun::Impl::keep_for_next_rank_0(const monitor::Event& record) {
  of_round_.push_back(record);
  if (of_round_.size() > kKeptRecords) of_round_.pop_front();
}

// The servers know which batches count, and tell them again in the next generation. The ledger
// takes them back and gets them again; callbacks and the progress hear of each batch once.
void ReplicaRun::Impl::take_back_round() {
  of_round_.clear();
  progress_ = *std::exchange(before_round_, {});
  guard_.load(progress_.guard);
}

}  // namespace trireme
