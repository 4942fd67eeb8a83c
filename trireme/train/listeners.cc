#include <trireme/base/unix_time.h>
#include <trireme/monitor/sink.h>
#include <trireme/train/listeners.h>
#include <utility>

namespace trireme {
namespace {

// Whether each rank has an event of its own. Of the others rank 0 tells alone.
bool is_of_a_rank(const monitor::Event& event) {
  return std::holds_alternative<monitor::StepRecord>(event) ||
         std::holds_alternative<monitor::ContinueRecord>(event) ||
         std::holds_alternative<monitor::FaultRecord>(event);
}

}  // namespace

void Listeners::bind(int rank, int world_size, torch::nn::Module& module) {
  const bool stop = context_ && context_->stop;
  context_.emplace(TrainContext{rank, world_size, module, stop});
}

bool Listeners::begin_to_tell() { return context_->rank == 0 && !std::exchange(telling_, true); }

// Rank 0 writes down which samples it used, and nobody else needs that.
void Listeners::tell(const monitor::Event& event) {
  own_.take(event);
  if (!std::holds_alternative<monitor::CommitRecord>(event) &&
      (context_->rank == 0 || is_of_a_rank(event)))
    forward_({context_->rank, unix_seconds(), event});
  tell_sinks(event);
}

void Listeners::tell_sinks(const monitor::Event& event) {
  if (context_->rank != 0) return;
  for (const auto& sink : options_.sinks) sink->take(event);
}

bool Listeners::fit_starts() {
  if (called_ != Called::nothing) return false;
  called_ = Called::start;
  call([&](Callback& callback) { callback.on_fit_start(*context_); });
  return true;
}

bool Listeners::fit_ends() {
  if (called_ == Called::end) return false;
  called_ = Called::end;
  call([&](Callback& callback) { callback.on_fit_end(*context_); });
  return true;
}

void Listeners::stepped(const monitor::StepRecord& record) {
  tell(record);
  call([&](Callback& callback) { callback.on_step(*context_, record); });
}

void Listeners::evaluated(const monitor::EvalRecord& record) {
  tell(record);
  call([&](Callback& callback) { callback.on_evaluate(*context_, record); });
}

void Listeners::saved(const std::string& path) {
  tell(monitor::SaveRecord{path});
  call([&](Callback& callback) { callback.on_checkpoint(*context_, path); });
}

void Listeners::epoch_ended(int64_t epoch) {
  call([&](Callback& callback) { callback.on_epoch_end(*context_, epoch); });
}

}  // namespace trireme
