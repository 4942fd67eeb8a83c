#include <trireme/monitor/sink.h>
#include <trireme/train/listeners.h>
#include <utility>

namespace trireme {

void Listeners::bind(int rank, int world_size, torch::nn::Module& module) {
  const bool stop = context_ && context_->stop;
  context_.emplace(TrainContext{rank, world_size, module, stop});
}

bool Listeners::begin_to_tell() { return context_->rank == 0 && !std::exchange(telling_, true); }

void Listeners::tell(const monitor::Event& event) {
  if (context_->rank != 0) return;
  for (const auto& sink : options_.sinks) monitor::deliver(event, *sink);
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
  tell(monitor::Message{"checkpoint saved: " + path});
  call([&](Callback& callback) { callback.on_checkpoint(*context_, path); });
}

void Listeners::epoch_ended(int64_t epoch) {
  call([&](Callback& callback) { callback.on_epoch_end(*context_, epoch); });
}

}  // namespace trireme
