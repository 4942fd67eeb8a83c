// The order of the samples of an epoch, as the user says it. Pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/config/rows.h>
#include <trireme/plan/block_sizes.h>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::plan {

class Mixture;         // plan/mixture.h
struct LengthBatches;  // plan/bucketing.h

enum class OrderKind {
  none,    // As the data is.
  full,    // Shuffled as a whole: a table of up to 2^24 samples, and above that as `index`.
  index,   // Shuffled as a whole, without a table: KeyedOrder.
  blocks,  // Blocks in another order, and the samples shuffled in windows: sequential reads.
};
std::string_view to_string(OrderKind kind);
// Takes true for full and false for none too. Throws Error(invalid_argument) naming the choices.
OrderKind order_kind(std::string_view text);

// The places that `blocks` shuffles at once, unless the user says otherwise. It is a power of
// four, so that KeyedOrder finds each sample at the first try. A reader must have the blocks that
// a window touches at hand: those of 4096 pictures are some hundred megabytes.
inline constexpr int64_t kOrderWindow = 4096;

struct OrderOptions {
  OrderOptions() = default;
  OrderOptions(OrderKind of) : kind(of) {}
  // `.shuffle = true` is full, `.shuffle = false` is none.
  template <std::same_as<bool> Flag>
  OrderOptions(Flag shuffle) : kind(shuffle ? OrderKind::full : OrderKind::none) {}

  OrderKind kind = OrderKind::full;
  int64_t window = kOrderWindow;  // With blocks: the samples of so many places change places.
  DataBlocks blocks;              // With blocks; null: all samples are one block.
  // Samples of several sources in stated shares; `kind` and `window` then order each of them.
  std::shared_ptr<const Mixture> mixture;
  // Samples of similar length meet in a batch.
  std::shared_ptr<const LengthBatches> by_length;

  bool shuffles() const { return kind != OrderKind::none; }
  // False for an order from a log that has only digests of long lists: its samples cannot be
  // computed, and it still can be compared.
  bool is_known() const;
  // The places of an epoch of a source that has `size` samples. Throws Error(invalid_argument)
  // for a source that is not that of the mixture.
  int64_t samples_of_epoch(int64_t size) const;
  // "shuffled anew each epoch (seed 7)"
  std::string describe(uint64_t seed) const;
  // true and false for full and none, "index", or an object with what belongs to the kind.
  Json to_json() const;
  // Throws Error(invalid_argument) for a value that to_json() cannot have made.
  static OrderOptions from_json(const Json& json);
  // Whether both give the same samples, with the same seed.
  bool operator==(const OrderOptions& other) const;
};
config::Rows rows_of(const OrderOptions*);

}  // namespace trireme::plan
