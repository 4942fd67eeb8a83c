#include <trireme/plan/memory_simulation.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <algorithm>
#include <cmath>

namespace trireme::plan {
namespace {

class MemorySimulation {
 public:
  explicit MemorySimulation(const MemoryChain& chain)
      : chain_(chain), values_(chain.size() + 1), saved_(chain.size()), gradient_at_(-1) {
    hold(0, &Value::running, true);
  }

  void run(const MemoryOperation& operation) {
    operation_ = &operation;
    const bool is_loss = operation.kind == MemoryKind::loss;
    if (!is_loss && (operation.block < 0 || operation.block >= static_cast<int>(chain_.size())))
      refuse("there is no such block");
    const size_t i = is_loss ? chain_.size() : static_cast<size_t>(operation.block);
    switch (operation.kind) {
      case MemoryKind::forward_all:
      case MemoryKind::forward_checkpoint:
      case MemoryKind::forward_nothing: return forward(i);
      case MemoryKind::loss: return loss();
      case MemoryKind::backward: return backward(i);
      case MemoryKind::swap_out: return swap_out(i);
      case MemoryKind::wait_out: return wait_out(i);
      case MemoryKind::swap_in: return swap_in(i);
      case MemoryKind::wait_in: return wait_in(i);
      case MemoryKind::compress: return compress(i);
      case MemoryKind::decompress: return decompress(i);
    }
  }

  MemoryUse result() const {
    if (gradient_at_ != 0)
      throw Error(ErrorCode::internal, "plan", "memory: not every block has its backward");
    return {peak_, now_, waited_};
  }

 private:
  // The holders of a value between two blocks: the computation, which uses it next; the
  // activations of the block that made it; those of the block that uses it, or its checkpoint.
  struct Value {
    bool running = false, output = false, input = false;
    bool any() const { return running || output || input; }
  };
  enum class Place { nowhere, memory, leaving, away, coming, compressed };
  struct Saved {
    Place place = Place::nowhere;
    double copied_at = 0;
  };

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::internal, "plan",
                fmt::format("memory: {}: {}", to_string(*operation_), what));
  }
  void need(bool condition, const char* what) const {
    if (!condition) refuse(what);
  }
  void hold(size_t value, bool Value::*holder, bool on) {
    Value& v = values_[value];
    const bool before = v.any();
    v.*holder = on;
    live_ += (static_cast<int64_t>(v.any()) - static_cast<int64_t>(before)) * chain_.x[value];
  }
  void reach(int64_t more) { peak_ = std::max(peak_, live_ + more); }

  void forward(size_t i) {
    const BlockMemory& block = chain_.block(i);
    const bool all = operation_->kind == MemoryKind::forward_all;
    need(values_[i].any(), "its input is not there");
    need(saved_[i].place == Place::nowhere, "its activations are there already");
    reach((all ? block.inner_bytes : 0) + chain_.x[i + 1] + block.forward_extra_bytes);
    if (operation_->kind == MemoryKind::forward_checkpoint || (all && block.saves_input))
      hold(i, &Value::input, true);
    hold(i, &Value::running, false);
    if (all) take(i, block.inner_bytes);
    // An output whose gradient is there was computed again, and nobody uses it.
    if (gradient_at_ < 0 || static_cast<int>(i) + 1 < gradient_at_)
      hold(i + 1, &Value::running, true);
    now_ += block.forward_seconds;
  }

  // The activations of a block are in memory, `inner` bytes of them since now.
  void take(size_t i, int64_t inner) {
    saved_[i].place = Place::memory;
    live_ += inner;
    if (chain_.block(i).saves_input) hold(i, &Value::input, true);
    if (chain_.block(i).saves_output) hold(i + 1, &Value::output, true);
    reach(0);
  }
  void release(size_t i) {
    live_ -= chain_.block(i).inner_bytes;
    hold(i, &Value::input, false);
    hold(i + 1, &Value::output, false);
  }
  int64_t moved_inner(size_t i) const {
    return chain_.block(i).inner_bytes - chain_.block(i).still_bytes;
  }
  void take_back(size_t i) { take(i, moved_inner(i)); }
  void move_out(size_t i) {
    live_ -= moved_inner(i);
    if (chain_.moves(i)) hold(i, &Value::input, false);
    if (chain_.moves(i + 1)) hold(i + 1, &Value::output, false);
  }

  void loss() {
    need(gradient_at_ < 0, "it was there already");
    need(values_[chain_.size()].any(), "the output of the chain is not there");
    gradient_at_ = static_cast<int>(chain_.size());
    live_ += chain_.g[chain_.size()];
    reach(0);
  }

  void backward(size_t i) {
    const BlockMemory& block = chain_.block(i);
    need(gradient_at_ == static_cast<int>(i) + 1, "the gradient of its output is not there");
    need(saved_[i].place == Place::memory, "its activations are not there");
    live_ += chain_.g[i];
    reach(block.backward_extra_bytes);
    release(i);
    hold(i + 1, &Value::running, false);
    live_ -= chain_.g[i + 1];
    saved_[i].place = Place::nowhere;
    gradient_at_ = static_cast<int>(i);
    now_ += block.backward_seconds;
  }

  void swap_out(size_t i) {
    need(saved_[i].place == Place::memory, "its activations are not there");
    need(chain_.options.out_bytes_per_second > 0, "there is no bandwidth to swap");
    saved_[i].place = Place::leaving;
    out_free_ = saved_[i].copied_at =
        std::max(out_free_, now_) +
        static_cast<double>(chain_.moved(i)) / chain_.options.out_bytes_per_second;
  }
  void wait_out(size_t i) {
    need(saved_[i].place == Place::leaving, "no copy out has begun");
    wait(saved_[i].copied_at);
    move_out(i);
    saved_[i].place = Place::away;
  }
  void swap_in(size_t i) {
    need(saved_[i].place == Place::away, "its activations are not away");
    need(chain_.options.in_bytes_per_second > 0, "there is no bandwidth to swap");
    take_back(i);
    saved_[i].place = Place::coming;
    in_free_ = saved_[i].copied_at =
        std::max(in_free_, now_) +
        static_cast<double>(chain_.moved(i)) / chain_.options.in_bytes_per_second;
  }
  void wait_in(size_t i) {
    need(saved_[i].place == Place::coming, "no copy back has begun");
    wait(saved_[i].copied_at);
    saved_[i].place = Place::memory;
  }
  void wait(double until) {
    waited_ += std::max(0.0, until - now_);
    now_ = std::max(now_, until);
  }

  void compress(size_t i) {
    need(saved_[i].place == Place::memory, "its activations are not there");
    live_ += chain_.compressed(i);
    reach(0);
    move_out(i);
    saved_[i].place = Place::compressed;
    now_ += chain_.options.compress_seconds_per_byte * static_cast<double>(chain_.moved(i));
  }
  void decompress(size_t i) {
    need(saved_[i].place == Place::compressed, "its activations are not compressed");
    take_back(i);
    live_ -= chain_.compressed(i);
    now_ += chain_.options.compress_seconds_per_byte * static_cast<double>(chain_.moved(i));
  }

  const MemoryChain& chain_;
  const MemoryOperation* operation_ = nullptr;
  std::vector<Value> values_;
  std::vector<Saved> saved_;
  int gradient_at_;  // The value whose gradient is there; -1 before the loss.
  int64_t live_ = 0, peak_ = 0;
  double now_ = 0, waited_ = 0, out_free_ = 0, in_free_ = 0;
};

}  // namespace

MemoryChain::MemoryChain(std::span<const BlockMemory> given, const MemoryPlanOptions& facts)
    : blocks(given), options(facts) {
  for (size_t i = 0; i <= blocks.size(); ++i)
    x.push_back(std::max(i < blocks.size() ? blocks[i].input_bytes : 0,
                         i > 0 ? blocks[i - 1].output_bytes : 0));
  g = options.counts_gradients ? x : std::vector<int64_t>(x.size(), 0);
  if (!options.input_gradient) g[0] = 0;
}

int64_t MemoryChain::saved(size_t i) const {
  return blocks[i].inner_bytes + (blocks[i].saves_input ? x[i] : 0) +
         (blocks[i].saves_output ? x[i + 1] : 0);
}

int64_t MemoryChain::moved(size_t i) const {
  return blocks[i].inner_bytes - blocks[i].still_bytes +
         (blocks[i].saves_input && moves(i) ? x[i] : 0) +
         (blocks[i].saves_output && moves(i + 1) ? x[i + 1] : 0);
}

int64_t MemoryChain::compressed(size_t i) const {
  return static_cast<int64_t>(
      std::ceil(options.compressed_fraction * static_cast<double>(moved(i))));
}

double MemoryChain::seconds() const {
  double sum = 0;
  for (const BlockMemory& block : blocks) sum += block.forward_seconds + block.backward_seconds;
  return sum;
}

MemoryUse simulate(const MemoryChain& chain, std::span<const MemoryOperation> operations) {
  MemorySimulation simulation(chain);
  for (const MemoryOperation& operation : operations) simulation.run(operation);
  return simulation.result();
}

}  // namespace trireme::plan
