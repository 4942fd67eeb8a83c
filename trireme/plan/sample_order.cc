#include <trireme/plan/sample_order.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/plan/bucketing.h>
#include <trireme/plan/keyed_order.h>
#include <trireme/plan/mixture.h>
#include <algorithm>
#include <array>
#include <numeric>

namespace trireme::plan {
namespace {

// Keys of an epoch's orders, so that they have nothing in common.
constexpr uint64_t kOfBlocks = 0x626c6f636b73, kOfWindows = 0x77696e646f7773;
constexpr uint64_t kOfSources = 0x736f7572636573, kOfLengths = 0x6c656e67746873;

uint64_t of_epoch(uint64_t seed, int64_t epoch) {
  return mix64(seed, static_cast<uint64_t>(epoch));
}

[[noreturn]] void refuse_order(const std::string& what, std::string_view remedy) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}

// Scales a random 64-bit number to 0..bound-1 by multiply-shift, without a division and without a
// loop of unknown length.
int64_t scaled(uint64_t random, int64_t bound) {
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(random) * static_cast<uint64_t>(bound)) >> 64);
}

}  // namespace

SampleOrder::SampleOrder(int64_t samples, uint64_t seed, OrderOptions options)
    : samples_(samples), seed_(seed), options_(std::move(options)) {
  if (options_.window < 1)
    refuse_order(fmt::format("data.window is {}, and must be at least 1", options_.window),
                 fmt::format("data.window={} (the default)", kOrderWindow));
  if (!options_.is_known())
    refuse_order("the order comes from a record that has only digests of its lists",
                 "the data set itself");
  if (options_.by_length) plan::check(*options_.by_length);
  const BlockSizes* const blocks = options_.blocks.get();
  if (options_.kind == OrderKind::blocks && !options_.mixture && blocks &&
      blocks->samples() != samples)
    refuse_order(fmt::format("the {} blocks have {} samples, and the data set has {}",
                             blocks->count(), blocks->samples(), samples),
                 "the blocks of this data set");
  if (!options_.mixture) return;
  if (samples != options_.mixture->samples())
    refuse_order(fmt::format("an epoch of {} samples, and that of its mixture has {}", samples,
                             options_.mixture->samples()),
                 "the samples of the mixture");
  for (const SourceSize& source : options_.mixture->options().sources) {
    OrderOptions order(options_.kind);
    order.window = options_.window;
    order.blocks = source.blocks;
    sources_.emplace_back(source.samples, mix64(seed, kOfSources, sources_.size()), order);
  }
}

int64_t SampleOrder::numbers() const {
  return options_.mixture ? options_.mixture->numbers() : samples_;
}

int64_t SampleOrder::at(int64_t epoch, int64_t place) const {
  std::array<int64_t, 1> sample;
  fill(epoch, place, sample);
  return sample[0];
}

void SampleOrder::fill(int64_t epoch, int64_t first, std::span<int64_t> out) const {
  if (epoch < 0 || first < 0 || first > samples_ || std::ssize(out) > samples_ - first)
    refuse_order(fmt::format("places {} to {} of epoch {} are outside an order of {} samples",
                             first, first + std::ssize(out), epoch, samples_),
                 "the data set that the position was saved with");
  if (out.empty()) return;
  if (options_.by_length)
    fill_by_length(epoch, first, out);
  else
    fill_base(epoch, first, out);
}

void SampleOrder::fill_base(int64_t epoch, int64_t first, std::span<int64_t> out) const {
  if (options_.mixture) return fill_from_mixture(epoch, first, out);
  switch (options_.kind) {
    case OrderKind::none: return std::iota(out.begin(), out.end(), first);
    case OrderKind::full:
      if (samples_ <= kLargestOrderTable) return fill_from_table(epoch, first, out);
      [[fallthrough]];
    case OrderKind::index: return KeyedOrder(samples_, of_epoch(seed_, epoch)).fill(first, out);
    case OrderKind::blocks: return fill_from_blocks(epoch, first, out);
  }
}

void SampleOrder::fill_from_table(int64_t epoch, int64_t first, std::span<int64_t> out) const {
  if (table_epoch_ != epoch) {
    table_ = shuffled(samples_, of_epoch(seed_, epoch));
    table_epoch_ = epoch;
  }
  std::copy_n(table_.begin() + first, out.size(), out.begin());
}

const SampleOrder::BlockTable& SampleOrder::blocks_of(int64_t epoch) const {
  BlockTable& table = block_table_;
  if (table.epoch == epoch) return table;
  table = {};
  const std::vector<int64_t> whole{0, samples_};
  const std::vector<int64_t>& starts = options_.blocks ? options_.blocks->starts() : whole;
  std::vector<int64_t> order(starts.size() - 1);
  if (!order.empty())
    KeyedOrder(std::ssize(order), mix64(of_epoch(seed_, epoch), kOfBlocks)).fill(0, order);
  table.ends.resize(order.size());
  table.shifts.resize(order.size());
  int64_t end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto block = static_cast<size_t>(order[i]);
    table.shifts[i] = starts[block] - end;
    end += starts[block + 1] - starts[block];
    table.ends[i] = end;
  }
  table.epoch = epoch;
  return table;
}

// The places run through the blocks in their order. Within each window of places the samples
// change places.
void SampleOrder::fill_from_blocks(int64_t epoch, int64_t first, std::span<int64_t> out) const {
  const BlockTable& table = blocks_of(epoch);
  const uint64_t key = mix64(of_epoch(seed_, epoch), kOfWindows);
  for (size_t done = 0; done < out.size();) {
    const int64_t place = first + static_cast<int64_t>(done);
    const int64_t number = place / options_.window, begin = number * options_.window;
    const int64_t size = std::min(options_.window, samples_ - begin);
    const std::span<int64_t> part =
        out.subspan(done, std::min(out.size() - done, static_cast<size_t>(begin + size - place)));
    KeyedOrder(size, mix64(key, static_cast<uint64_t>(number))).fill(place - begin, part);
    // Only the blocks of the window are searched.
    const auto low = std::upper_bound(table.ends.begin(), table.ends.end(), begin);
    const auto high = std::upper_bound(low, table.ends.end(), begin + size - 1);
    for (int64_t& sample : part) {
      const int64_t inner = begin + sample;
      const auto block = std::upper_bound(low, high, inner) - table.ends.begin();
      sample = inner + table.shifts[static_cast<size_t>(block)];
    }
    done += part.size();
  }
}

// The places that a row of places takes of a source follow each other, so each source is asked
// once for each pass.
void SampleOrder::fill_from_mixture(int64_t epoch, int64_t first, std::span<int64_t> out) const {
  const Mixture& mixture = *options_.mixture;
  std::vector<Mixture::Place> begins(sources_.size());
  std::vector<size_t> counts(sources_.size(), 0), of_place(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const Mixture::Place place = mixture.at(epoch, first + static_cast<int64_t>(i));
    of_place[i] = place.source;
    if (counts[place.source]++ == 0) begins[place.source] = place;
  }
  std::vector<std::vector<int64_t>> samples(sources_.size());
  for (size_t source = 0; source < sources_.size(); ++source) {
    if (counts[source] == 0) continue;
    const SampleOrder& order = sources_[source];
    std::vector<int64_t>& taken = samples[source];
    taken.resize(counts[source]);
    auto [number, pass, place] = begins[source];
    for (size_t done = 0; done < taken.size(); ++pass, place = 0) {
      const size_t part =
          std::min(taken.size() - done, static_cast<size_t>(order.samples() - place));
      order.fill(pass, place, std::span(taken).subspan(done, part));
      const int64_t base = mixture.number_of(epoch, {number, pass, 0});
      for (const size_t end = done + part; done < end; ++done) taken[done] += base;
    }
  }
  std::fill(counts.begin(), counts.end(), 0);
  for (size_t i = 0; i < out.size(); ++i) out[i] = samples[of_place[i]][counts[of_place[i]]++];
}

void SampleOrder::fill_by_length(int64_t epoch, int64_t first, std::span<int64_t> out) const {
  const LengthBatches& lengths = *options_.by_length;
  const int64_t window = lengths.batch * lengths.window;
  for (size_t done = 0; done < out.size();) {
    const int64_t place = first + static_cast<int64_t>(done);
    const int64_t number = place / window, begin = number * window;
    if (window_epoch_ != epoch || window_ != number) {
      std::vector<int64_t> samples(static_cast<size_t>(std::min(window, samples_ - begin)));
      fill_base(epoch, begin, samples);
      window_ = -1;
      of_window_ = batched_by_length(
          std::move(samples), lengths,
          mix64(of_epoch(seed_, epoch), kOfLengths, static_cast<uint64_t>(number)));
      window_epoch_ = epoch;
      window_ = number;
    }
    const auto from = static_cast<size_t>(place - begin);
    const size_t count = std::min(out.size() - done, of_window_.size() - from);
    std::copy_n(of_window_.begin() + static_cast<int64_t>(from), count,
                out.begin() + static_cast<int64_t>(done));
    done += count;
  }
}

std::vector<int64_t> shuffled(int64_t n, uint64_t seed) {
  if (n < 0)
    throw Error(ErrorCode::invalid_argument, "plan", fmt::format("cannot shuffle {} samples", n));
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = n - 1; i >= 1; --i) {
    const int64_t j = scaled(mix64(seed, static_cast<uint64_t>(i)), i + 1);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  }
  return order;
}

void check(const SampleOrder& order) {
  const OrderOptions& options = order.options();
  if (options.mixture) check(*options.mixture);
  if (options.kind != OrderKind::blocks || options.mixture || !options.blocks ||
      order.samples() == 0)
    return;
  // Without windows, the first place of each block shows where it is.
  OrderOptions plain = options;
  plain.window = 1;
  plain.by_length = nullptr;
  const std::vector<int64_t>& starts = options.blocks->starts();
  const SampleOrder blocks(order.samples(), order.seed(), plain);
  std::vector<bool> seen(starts.size(), false);
  for (int64_t place = 0; place < order.samples();) {
    const int64_t sample = blocks.at(0, place);
    const auto block = std::upper_bound(starts.begin(), starts.end(), sample) - starts.begin() - 1;
    const auto at = static_cast<size_t>(block);
    if (starts[at] != sample || seen[at])
      throw Error(ErrorCode::internal, "plan",
                  fmt::format("order: place {} has sample {}, which does not begin a block that "
                              "was not there before",
                              place, sample));
    seen[at] = true;
    place += starts[at + 1] - starts[at];
  }
}

}  // namespace trireme::plan
