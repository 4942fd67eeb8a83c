#include <trireme/data/service/sample_maker.h>

#include <ATen/core/Tensor.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace trireme::data {
namespace {

// A thread takes small samples together, because a call costs more than they do.
constexpr size_t kMostAtATime = 8;
constexpr int64_t kBytesAtATime = 64 << 10;
// The memory of an allocation beside what was asked for: its head, and the rest of its block.
constexpr size_t kOfAllocation = 32;
// A tensor of its own has two heads and its bytes, which begin at a multiple of 64.
constexpr size_t kOfTensor =
    sizeof(c10::TensorImpl) + sizeof(c10::StorageImpl) + 64 + 3 * kOfAllocation;
// A node of a tree or list has up to four words of its own.
constexpr size_t kOfNode = 32 + kOfAllocation;

int64_t bytes_of_row(const Example& row) {
  size_t bytes = row.data.nbytes() + row.target.nbytes();
  for (const auto& [name, tensor] : row.more) bytes += tensor.nbytes();
  return static_cast<int64_t>(bytes);
}

// A row with memory of its own. A view would hold that of all rows until the last one is dropped.
at::Tensor own_row(const at::Tensor& rows, int64_t row) {
  const at::Tensor view = rows.narrow(0, row, 1);
  return view.storage().nbytes() > view.nbytes() ? view.clone() : view;
}

Example row_of(const Example& rows, int64_t row) {
  Example one{own_row(rows.data, row), own_row(rows.target, row)};
  for (const auto& [name, tensor] : rows.more) one.more.emplace(name, own_row(tensor, row));
  return one;
}

Example in_plain_memory(Example rows) {
  rows.data = rows.data.contiguous();
  rows.target = rows.target.contiguous();
  for (auto& [name, tensor] : rows.more) tensor = tensor.contiguous();
  return rows;
}

}  // namespace

size_t SampleMaker::HashOfKey::operator()(const Key& key) const {
  return mix64(key.seed, static_cast<uint64_t>(key.epoch), static_cast<uint64_t>(key.longest),
               static_cast<uint64_t>(key.index) * 4 + key.part);
}

int64_t SampleMaker::memory_of(const MadeSample& sample) {
  size_t bytes = sizeof(MadeSample) + 2 * sizeof(void*) + kOfAllocation;  // By make_shared().
  bytes += sizeof(std::pair<const Key, Entry>) + kOfNode + sizeof(void*);
  bytes += sizeof(Key) + kOfNode;
  if (!sample.is_left_out) bytes += static_cast<size_t>(sample.bytes) + 2 * kOfTensor;
  for (const auto& [name, tensor] : sample.row.more)
    bytes += sizeof(std::pair<const std::string, at::Tensor>) + name.size() + kOfNode + kOfTensor;
  return static_cast<int64_t>(bytes);
}

SampleMaker::SampleMaker(std::vector<Part> parts, int threads, int64_t bytes)
    : parts_(std::move(parts)),
      limit_bytes_(bytes),
      loads_(parts_.size(), StageUse{.name = "load"}) {
  for (int i = 0; i < threads; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

SampleMaker::~SampleMaker() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

void SampleMaker::make(size_t part, const Draws& draws, Order order) {
  const auto pending = std::make_shared<Pending>();
  pending->order = std::move(order);
  pending->samples.resize(draws.indices.size());
  {
    const std::lock_guard lock(mutex_);
    const bool is_fixed = parts_[part].is_fixed;
    use_.asked += std::ssize(draws.indices);
    for (size_t i = 0; i < draws.indices.size(); ++i) {
      const Key key{part, draws.indices[i], is_fixed ? 0 : draws.epoch,
                    is_fixed ? 0 : draws.at(i).seed, draws.longest};
      const auto [at, is_new] = entries_.try_emplace(key);
      Entry& entry = at->second;
      if (entry.sample) {
        recent_.splice(recent_.begin(), recent_, entry.recent);
        pending->samples[i] = entry.sample;
        continue;
      }
      if (is_new) queue_.push_back(key);
      entry.waiting.emplace_back(pending, i);
      ++pending->missing;
    }
    if (pending->missing > 0) {
      changed_.notify_all();
      return;
    }
  }
  tell({pending});
}

MakerUse SampleMaker::use() const {
  const std::lock_guard lock(mutex_);
  MakerUse use = use_;
  use.kept = std::ssize(recent_);
  return use;
}

StageUse SampleMaker::load_of(size_t part) const {
  const std::lock_guard lock(mutex_);
  return loads_[part];
}

// Takes the next samples of one part, epoch and length. Samples that nobody wants any more are
// dropped. The caller holds the lock.
std::vector<SampleMaker::Key> SampleMaker::next_keys() {
  std::vector<Key> keys;
  const auto most = static_cast<size_t>(
      std::clamp<int64_t>(kBytesAtATime / std::max<int64_t>(1, row_bytes_), 1, kMostAtATime));
  while (!queue_.empty() && keys.size() < most) {
    const Key key = queue_.front();
    if (!keys.empty() &&
        (key.part != keys[0].part || key.epoch != keys[0].epoch || key.longest != keys[0].longest))
      break;
    queue_.pop_front();
    const auto at = entries_.find(key);
    const bool is_wanted = std::ranges::any_of(
        at->second.waiting, [](const auto& each) { return !each.first->order.cancelled(); });
    if (is_wanted)
      keys.push_back(key);
    else
      entries_.erase(at);
  }
  return keys;
}

void SampleMaker::work(const std::stop_token& stop) {
  while (true) {
    std::vector<Key> keys;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !queue_.empty(); })) return;
      if (stop.stop_requested()) return;
      keys = next_keys();
    }
    if (keys.empty()) continue;
    try {
      const auto begin = std::chrono::steady_clock::now();
      const Samples samples = made(keys);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      keep(keys, samples, seconds.count());
    } catch (...) {
      fail(keys, std::current_exception());
    }
  }
}

SampleMaker::Samples SampleMaker::made(const std::vector<Key>& keys) const {
  Draws draws;
  draws.epoch = keys[0].epoch;
  draws.longest = keys[0].longest;
  for (const Key& key : keys) {
    draws.indices.push_back(key.index);
    draws.seeds.push_back(key.seed);
  }
  std::vector<size_t> left_out;
  const Example rows = in_plain_memory(parts_[keys[0].part].source->get_kept(draws, left_out));
  Samples samples;
  int64_t row = 0;
  for (size_t i = 0; i < keys.size(); ++i) {
    auto sample = std::make_shared<MadeSample>();
    sample->is_left_out = std::ranges::find(left_out, i) != left_out.end();
    if (!sample->is_left_out) {
      sample->row = row_of(rows, row++);
      sample->bytes = bytes_of_row(sample->row);
    }
    sample->memory_bytes = memory_of(*sample);
    samples.push_back(std::move(sample));
  }
  return samples;
}

void SampleMaker::keep(const std::vector<Key>& keys, const Samples& samples, double seconds) {
  std::vector<std::shared_ptr<Pending>> complete;
  {
    const std::lock_guard lock(mutex_);
    use_.made += std::ssize(keys);
    StageUse& load = loads_[keys[0].part];
    load.seconds += seconds;
    load.samples += std::ssize(keys);
    for (const auto& sample : samples) load.bytes += sample->bytes;
    for (size_t i = 0; i < keys.size(); ++i) {
      Entry& entry = entries_.at(keys[i]);
      entry.sample = samples[i];
      recent_.push_front(keys[i]);
      entry.recent = recent_.begin();
      use_.kept_bytes += samples[i]->memory_bytes;
      row_bytes_ = std::max(row_bytes_, samples[i]->bytes);
      for (auto& [pending, place] : entry.waiting) {
        pending->samples[place] = samples[i];
        if (--pending->missing == 0) complete.push_back(std::move(pending));
      }
      entry.waiting.clear();
    }
    while (use_.kept_bytes > limit_bytes_ && !recent_.empty()) {
      const auto oldest = entries_.find(recent_.back());
      use_.kept_bytes -= oldest->second.sample->memory_bytes;
      entries_.erase(oldest);
      recent_.pop_back();
    }
  }
  tell(complete);
}

void SampleMaker::fail(const std::vector<Key>& keys, const std::exception_ptr& error) {
  std::vector<std::shared_ptr<Pending>> complete;
  {
    const std::lock_guard lock(mutex_);
    for (const Key& key : keys) {
      const auto at = entries_.find(key);
      for (auto& [pending, place] : at->second.waiting) {
        if (!pending->error) pending->error = error;
        if (--pending->missing == 0) complete.push_back(std::move(pending));
      }
      entries_.erase(at);
    }
  }
  tell(complete);
}

void SampleMaker::tell(const std::vector<std::shared_ptr<Pending>>& complete) {
  for (const auto& pending : complete) {
    if (pending->error)
      pending->order.failed(pending->error);
    else
      pending->order.done(std::move(pending->samples));
  }
}

}  // namespace trireme::data
