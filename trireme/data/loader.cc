#include <fcntl.h>
#include <trireme/data/loader.h>

#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/cores.h>
#include <trireme/base/descriptor.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/data/announcements.h>
#include <trireme/data/block_share.h>
#include <trireme/data/input_memory.h>
#include <trireme/data/load_meter.h>
#include <trireme/data/prefetch.h>
#include <trireme/net/shared_memory.h>
#include <trireme/plan/bucketing.h>
#include <trireme/plan/mixture.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <deque>

namespace trireme {
namespace {

constexpr int kMostThreads = 256;
constexpr uint64_t kOfDraws = 0x6472617773;

void require(bool holds, const std::string& what, std::string_view remedy) {
  if (!holds) throw Error(ErrorCode::invalid_argument, "data", what, remedy);
}

void check_options(const Source* source, const LoaderOptions& options, int rank, int world_size) {
  require(source != nullptr, "the loader was given no source", "a source");
  require(source->size() > 0, "the source has no samples", "a data set with at least one sample");
  require(world_size >= 1 && rank >= 0 && rank < world_size,
          fmt::format("rank {} of {} replicas does not exist", rank, world_size),
          "a rank from 0, below the number of replicas");
  require(
      options.batch >= world_size,
      fmt::format("global batch {} is smaller than the {} replicas", options.batch, world_size),
      fmt::format("data.batch of at least {}, or fewer replicas", world_size));
  require(options.threads == LoaderOptions::kTuned ||
              (options.threads >= 0 && options.threads <= kMostThreads),
          fmt::format("data.threads is {}, but must lie in 0..{}", options.threads, kMostThreads),
          "auto");
  require(options.prefetch == LoaderOptions::kTuned || options.prefetch >= 0,
          fmt::format("data.prefetch is {}, but must not be negative", options.prefetch), "auto");
  require(options.loaders_of_host >= 1,
          fmt::format("loaders_of_host is {}, but must be at least 1", options.loaders_of_host),
          "the replicas of this host");
  require(
      options.timeout > Milliseconds(0),
      fmt::format("the loader's timeout is {} ms, but must be positive", options.timeout.count()),
      "a longer one");
  require(at::isFloatingType(options.dtype),
          fmt::format("the loader's dtype is {}, but must be a floating-point type",
                      c10::toString(options.dtype)),
          "float32 or float64");
}

at::Tensor converted(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.is_floating_point() ? tensor.to(dtype) : tensor;
}

void check_rows(const at::Tensor& tensor, size_t rows, std::string_view part) {
  if (tensor.defined() && tensor.dim() > 0 && tensor.size(0) == static_cast<int64_t>(rows)) return;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("the source's get_batch() gave {} of shape {} for {} samples; the first "
                          "size must be the "
                          "number of samples",
                          part,
                          tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ", "))
                                           : "nothing",
                          rows),
              "stacking the samples along a new first dimension");
}

// A share of a global batch without its tensors, and the sample before it in the global batch.
struct Assigned {
  Batch batch;
  int64_t before = 0;
  int64_t longest = 0;  // In the global batch; 0: not known.
};

// The work of the source, over all threads.
struct LoadTime {
  std::atomic<int64_t> nanoseconds{0}, computing{0}, samples{0}, batches{0}, bytes{0};

  data::LoadTotals totals() const {
    return {static_cast<double>(nanoseconds) * 1e-9, static_cast<double>(computing) * 1e-9,
            batches};
  }
};

// The time in which this thread computed, or waited for a processor on which to compute. Where the
// system does not tell the latter, it is left out.
int64_t nanoseconds_of_computing() {
  static thread_local const Descriptor file(
      ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
  char text[96];
  const ssize_t length = file ? ::pread(file.get(), text, sizeof text - 1, 0) : 0;
  text[std::max<ssize_t>(0, length)] = 0;
  char* rest = text;
  const int64_t waited = std::strtoll(rest, &rest, 10) >= 0 ? std::strtoll(rest, &rest, 10) : 0;
  // The first number of the file is older than this moment.
  struct timespec time {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec + waited;
}

// Moves the samples at these places of a batch to those that were left out.
void move_left_out(Batch& batch, const std::vector<size_t>& places) {
  std::vector<int64_t> kept;
  size_t next = 0;
  for (size_t i = 0; i < batch.indices.size(); ++i) {
    const bool is_left_out = next < places.size() && places[next] == i;
    next += is_left_out ? 1 : 0;
    (is_left_out ? batch.left_out : kept).push_back(batch.indices[i]);
  }
  batch.indices = std::move(kept);
  batch.places_left_out.assign(places.begin(), places.end());
}

// The draws of a share; for an empty one, that of the first sample.
Draws draws_of(const Assigned& assigned, uint64_t seed) {
  const Batch& batch = assigned.batch;
  Draws draws(batch.indices.empty() ? std::vector<int64_t>{0} : batch.indices,
              batch.position.epoch, seed);
  draws.consumed = batch.position.consumed;
  draws.before = assigned.before;
  draws.longest = assigned.longest;
  return draws;
}

// Loads the tensors of a batch whose indices are known. For an empty share, a sample of the source
// gives the other sizes of the tensors.
Batch load(const Source& source, const LoaderOptions& options, uint64_t seed, Assigned assigned,
           LoadTime& time, data::Announcements& announcements) {
  // An error too ends the use of the samples.
  const std::shared_ptr<void> at_the_end(
      nullptr, [&, at = assigned.batch.position](void*) { announcements.end(at); });
  const auto begin = std::chrono::steady_clock::now();
  const int64_t computed = nanoseconds_of_computing();
  Batch& batch = assigned.batch;
  const bool empty = batch.indices.empty();
  const Draws draws = draws_of(assigned, seed);
  const std::vector<int64_t>& asked = draws.indices;
  std::vector<size_t> left_out;
  const Example rows = source.get_kept(draws, left_out);
  const size_t kept = asked.size() - left_out.size();
  if (!empty) move_left_out(batch, left_out);
  const auto take = [&](const at::Tensor& tensor, const std::string& name) {
    check_rows(tensor, kept, name);
    return converted(empty ? tensor.slice(0, 0, 0) : tensor, options.dtype);
  };
  batch.data = take(rows.data, "data");
  batch.target = take(rows.target, "targets");
  for (const auto& [name, tensor] : rows.more) {
    require(name != "data" && name != "target",
            fmt::format("the source gives '{}' in Example::more", name),
            "Example::data and Example::target for these two");
    batch.more.emplace(name, take(tensor, name));
  }
  if (!options.device.is_cpu()) batch = batch.on(options.device);
  time.nanoseconds += (std::chrono::steady_clock::now() - begin).count();
  time.computing += nanoseconds_of_computing() - computed;
  time.samples += static_cast<int64_t>(asked.size());
  time.bytes += bytes_of(rows);
  ++time.batches;
  return std::move(batch);
}

// The samples around one of the order that may be asked for before it.
int64_t samples_of_windows(const plan::OrderOptions& order) {
  int64_t samples = 0;
  if (order.kind == plan::OrderKind::blocks)  // Each source of a mixture has windows of its own.
    samples += order.window * (order.mixture ? std::ssize(order.mixture->options().sources) : 1);
  if (order.by_length) samples += order.by_length->batch * order.by_length->window;
  return samples;
}

plan::DataPlanOptions plan_options(const Source& source, const LoaderOptions& options) {
  return {.samples = options.shuffle.samples_of_epoch(source.size()),
          .batch = options.batch,
          .seed = options.seed,
          .shuffle = options.shuffle,
          .drop_last = options.drop_last,
          .virtual_shards = options.virtual_shards};
}

// The setting with which a loader begins.
data::LoaderSetting first_setting(const LoaderOptions& options) {
  data::LoaderSetting setting = options.start.value_or(data::LoaderSetting{});
  if (options.threads != LoaderOptions::kTuned) setting.threads = options.threads;
  if (options.threads == 0) setting.ahead = 0;
  if (options.prefetch != LoaderOptions::kTuned && options.threads != 0)
    setting.ahead = options.prefetch;
  return setting;
}

// The limit of a cache in memory; 0: there is none.
int64_t bytes_of_cache(const Source& source) {
  const auto cache = source.cache_use();
  return cache ? cache->bytes_in_memory() : 0;
}

data::Tuner tuner_of(const Source& source, const LoaderOptions& options) {
  data::TunerLimits limits;
  const bool has_threads = options.threads != 0;
  limits.threads_may_change = options.threads == LoaderOptions::kTuned;
  limits.ahead_may_change = options.prefetch == LoaderOptions::kTuned && has_threads;
  if (limits.threads_may_change || limits.ahead_may_change) {
    limits.cores = static_cast<double>(usable_cores()) / options.loaders_of_host;
    limits.compute_threads = options.compute_threads;
    limits.memory_bytes =
        data::memory_beside_blocks(options.memory_bytes, bytes_of_cache(source)) /
        options.loaders_of_host;
  }
  return {first_setting(options), limits};
}

}  // namespace

struct Loader::Impl {
  Impl(std::shared_ptr<const Source> source_, LoaderOptions options_, int rank_, int world_size_)
      : source(std::move(source_)),
        options(options_),
        rank(rank_),
        world_size(world_size_),
        plan(plan_options(*source, options)),
        announcements(std::make_shared<data::Announcements>(source)),
        tuner(tuner_of(*source, options)) {
    if (data::process_has_blocks())
      blocks.emplace(data::memory_of_kept_blocks(options.memory_bytes, bytes_of_cache(*source)),
                     options.loaders_of_host);
    if (options.threads != 0)
      prefetch = std::make_unique<data::Prefetch>(tuner.setting().threads, rank, world_size);
  }

  // This replica's share of the global batch at `at`.
  Assigned assign(plan::DataPosition at) const {
    const std::vector<int64_t> global = plan.global_batch(at);
    Assigned assigned = share_of(global, at);
    add_sizes(global, assigned);
    return assigned;
  }

  Assigned share_of(const std::vector<int64_t>& global, plan::DataPosition at) const {
    const auto [first, last] =
        plan.share_of(static_cast<int64_t>(global.size()), rank, world_size);
    const int64_t size = std::ssize(global);
    const int64_t before = (first + size - 1) % size;
    return {{.indices = {global.begin() + first, global.begin() + last},
             .global_size = size,
             .global_used = size,
             .position = at,
             .next = plan.next(at)},
            global[static_cast<size_t>(before)]};
  }

  // All ranks count the whole batch, so that they need not tell each other.
  void add_sizes(const std::vector<int64_t>& global, Assigned& assigned) const {
    const int64_t epoch = assigned.batch.position.epoch;
    for (const int64_t index : global) {
      const std::optional<SampleSize> size = source->size_of({index, epoch});
      if (!size) {
        assigned.longest = 0;
        assigned.batch.global_targets = Batch().global_targets;
        return;
      }
      assigned.longest = std::max(assigned.longest, size->length);
      int64_t& targets = assigned.batch.global_targets;
      if (size->targets) targets = std::max<int64_t>(0, targets) + *size->targets;
    }
  }

  // The seed of the order and that of the draws differ, so that they have nothing in common.
  uint64_t seed_of_draws() const { return mix64(options.seed, kOfDraws); }

  void fill_window() {
    const data::LoaderSetting now = tuner.setting();
    const auto window = static_cast<size_t>(std::max({now.threads, now.ahead, 1}));
    while (prefetch->size() < window) {
      Assigned share = assign(scheduled);
      if (source->reads_ahead() > 0)
        while (!plan::is_before(scheduled, announced)) announce_batch();
      ahead.push_back(scheduled);
      for (int64_t i = 0; i < every; ++i) scheduled = plan.next(scheduled);
      prefetch->add(data::Prefetch::Task(
          [source = source, options = options, seed = seed_of_draws(), time = time,
           announcements = announcements, share = std::move(share)]() mutable {
            return load(*source, options, seed, std::move(share), *time, *announcements);
          }));
    }
  }

  // Tells the source which samples of this replica come next.
  void announce_ahead() {
    const int64_t worth = source->reads_ahead();
    if (worth == 0) return;
    const int64_t most = worth + samples_of_windows(options.shuffle);
    while (announcements->samples() < most) announce_batch();
  }

  void announce_batch() {
    if (!plan_ahead) plan_ahead.emplace(plan.options());
    const Assigned share = share_of(plan_ahead->global_batch(announced), announced);
    announcements->add(announced, share.batch.global_size,
                       share.batch.indices.empty()
                           ? std::nullopt
                           : std::optional(draws_of(share, seed_of_draws())));
    announced = share.batch.next;
  }

  // The batches in front of `to` are not wanted any more.
  void announce_from(plan::DataPosition to) {
    if (!announcements->skip_to(to)) announced = to;
  }

  // Drops the batches in front of `to` that were read ahead, or all of them.
  void drop_until(plan::DataPosition to) {
    for (; !ahead.empty() && ahead.front() != to; ahead.pop_front()) prefetch->drop();
    if (ahead.empty()) scheduled = to;
  }

  Batch next_prefetched() {
    drop_until(position);
    fill_window();
    if (!prefetch->wait(options.timeout))
      throw Error(ErrorCode::timeout, "data",
                  fmt::format("the batch at epoch {}, sample {} was not loaded within {} ms",
                              position.epoch, position.consumed, options.timeout.count()),
                  "a faster source, more data.threads, or a longer timeout");
    ahead.pop_front();
    try {
      return prefetch->take();
    } catch (...) {
      prefetch->clear();
      ahead.clear();
      throw;
    }
  }

  // The threads may take tasks in other numbers from now on; batches stay the same.
  void tune(const Batch& batch, double own, double waited_now) {
    const int before = tuner.setting().threads;
    bool has_changed = tuner.fit(bytes_of(batch));
    meter.took(own, waited_now, time->totals());
    if (!meter.is_full() && !has_changed) return;
    if (!has_changed) {
      data::LoadWindow window = meter.read(time->totals());
      window.free_bytes = net::available_memory_bytes();
      has_changed = tuner.take(window);
    }
    const int threads = tuner.setting().threads;
    if (threads != before) prefetch->set_threads(threads);
    meter.begin(time->totals(), has_changed ? std::max(before, threads) : 0, threads);
  }

  void seek(plan::DataPosition to) {
    if (to != position) announce_from(to);
    position = to;
    if (prefetch) drop_until(to);
  }

  std::shared_ptr<const Source> source;
  LoaderOptions options;
  int rank, world_size;
  ShareNow share_now;  // May be null.
  plan::DataPlan plan;
  plan::DataPosition position;           // The batch that next() returns next.
  plan::DataPosition scheduled;          // The next batch that a thread is given.
  std::deque<plan::DataPosition> ahead;  // Those of the tasks that threads have been given.
  plan::DataPosition announced;          // The first batch that was not announced to the source.
  // It keeps tables of the order there, while `plan` keeps those of the batches to be loaded.
  std::optional<plan::DataPlan> plan_ahead;
  const std::shared_ptr<data::Announcements> announcements;
  // Threads may outlive a moved loader.
  const std::shared_ptr<LoadTime> time = std::make_shared<LoadTime>();
  double waited = 0, seconds = 0;  // The time of the caller's steps.
  double thread_seconds = 0;       // The time of the threads in it.
  int64_t every = 1;               // A thread is given one of so many batches.
  data::Tuner tuner;
  data::LoadMeter meter;
  std::optional<std::chrono::steady_clock::time_point> got_last;
  // Its share of the memory for blocks of records, if a reader has any.
  std::optional<data::BlockShare> blocks;
  std::unique_ptr<data::Prefetch> prefetch;  // Empty with threads = 0.
};

Loader::Loader(std::shared_ptr<const Source> source, LoaderOptions options, int rank,
               int world_size) {
  check_options(source.get(), options, rank, world_size);
  impl_ = std::make_unique<Impl>(std::move(source), options, rank, world_size);
}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;

Batch Loader::next() {
  take_share();
  const auto begin = std::chrono::steady_clock::now();
  impl_->announce_ahead();
  Batch batch = impl_->prefetch
                    ? impl_->next_prefetched()
                    : load(*impl_->source, impl_->options, impl_->seed_of_draws(),
                           impl_->assign(impl_->position), *impl_->time, *impl_->announcements);
  const auto end = std::chrono::steady_clock::now();
  const double waited = std::chrono::duration<double>(end - begin).count();
  const auto got_last = std::exchange(impl_->got_last, end).value_or(begin);
  const double step = std::chrono::duration<double>(end - got_last).count();
  impl_->waited += waited;
  impl_->seconds += step;
  impl_->thread_seconds += step * impl_->tuner.setting().threads;
  impl_->position = batch.next;
  impl_->announce_from(batch.next);
  if (impl_->prefetch && impl_->tuner.reason() != data::TunedBy::fixed)
    impl_->tune(batch, std::chrono::duration<double>(begin - got_last).count(), waited);
  if (impl_->prefetch) impl_->fill_window();  // The threads work while the caller trains.
  return batch;
}

bool Loader::at_epoch_start() const { return impl_->position.consumed == 0; }
const plan::DataPlan& Loader::plan() const { return impl_->plan; }
int64_t Loader::batches_per_epoch() const { return impl_->plan.batches_per_epoch(); }
plan::DataPosition Loader::position() const { return impl_->position; }

void Loader::seek(plan::DataPosition position) {
  const int64_t samples = impl_->plan.options().samples;
  require(position.epoch >= 0 && position.consumed >= 0 && position.consumed <= samples,
          fmt::format("epoch {}, sample {} is not a position in a data set of {} samples",
                      position.epoch, position.consumed, samples),
          "the data set that the position was saved with");
  const bool epoch_is_over = impl_->plan.global_batch(position).empty();
  impl_->seek(epoch_is_over ? plan::DataPosition{.epoch = position.epoch + 1} : position);
}

void Loader::follow(ShareNow share_now) { impl_->share_now = std::move(share_now); }

void Loader::take_share() {
  const auto now = impl_->share_now ? impl_->share_now() : std::nullopt;
  if (!now || *now == std::pair(impl_->rank, impl_->world_size)) return;
  check_options(impl_->source.get(), impl_->options, now->first, now->second);
  LoaderOptions options = impl_->options;
  if (options.threads != 0) options.start = impl_->tuner.setting();
  impl_->prefetch.reset();  // No thread loads for two shares.
  auto made = std::make_unique<Impl>(impl_->source, options, now->first, now->second);
  made->seek(impl_->position);
  made->share_now = std::move(impl_->share_now);
  impl_ = std::move(made);
}

double Loader::seconds_waited() const { return impl_->waited; }

std::vector<data::StageUse> Loader::stage_use() const {
  std::vector<data::StageUse> use = impl_->source->stage_use();
  if (use.empty())
    use.push_back({"load", static_cast<double>(impl_->time->nanoseconds) * 1e-9,
                   impl_->time->samples, impl_->time->bytes});
  return use;
}

LoaderTuning Loader::tuning() const {
  const data::Tuner& tuner = impl_->tuner;
  return {.setting = tuner.setting(),
          .mean_threads = impl_->seconds > 0 ? impl_->thread_seconds / impl_->seconds : 0,
          .tunes_threads = impl_->options.threads == LoaderOptions::kTuned,
          .tunes_prefetch = impl_->options.prefetch == LoaderOptions::kTuned && impl_->prefetch,
          .is_settled = tuner.is_settled(),
          .reason = tuner.reason()};
}

data::ReadAhead Loader::beside() const {
  const data::LoaderSetting setting = impl_->tuner.setting();
  return {.threads = setting.threads,
          .batches = setting.ahead,
          .memory_bytes = impl_->tuner.spare_bytes(),
          .timeout = impl_->options.timeout,
          .rank = impl_->rank,
          .world_size = impl_->world_size};
}

void Loader::read_ahead_every(int64_t batches) {
  require(batches >= 1, fmt::format("a loader reads every {}-th batch ahead", batches), "1");
  impl_->every = batches;
}

Loader::Iterator& Loader::Iterator::operator++() {
  if (loader_->position().epoch == epoch_)
    batch_ = loader_->next();
  else
    loader_ = nullptr;
  return *this;
}

Loader::Iterator Loader::begin() {
  Iterator iterator;
  iterator.loader_ = this;
  iterator.epoch_ = position().epoch;
  return ++iterator;
}

}  // namespace trireme
