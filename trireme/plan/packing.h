// Packs documents of different lengths into samples of equal size, so that hardly any of it is
// padding. Pure.
#pragma once
#include <trireme/base/json.h>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::plan {

enum class TooLong {
  refuse,  // A document longer than a pack is an error.
  split,   // It fills whole packs, and its rest is packed as a document.
};

struct PackingOptions {
  int64_t tokens = 0;     // Of a pack.
  int64_t window = 4096;  // The documents that are packed together.
  TooLong too_long = TooLong::refuse;
};

// Tokens [from, from + count) of a document. A pack has its documents in ascending order.
struct PackPart {
  int64_t document = 0, from = 0, count = 0;
  bool operator==(const PackPart&) const = default;
};

// The packs of a data set are its samples: each epoch has the same ones, and the order of an epoch
// shuffles them. (With other packs in each epoch their number would change, and with it the
// meaning of a position.) Within a window each document, the longest first, goes into the pack
// that it fills best. A window is packed when one of its packs is asked for; only the number of
// packs before each window, the targets of each pack, and some windows are kept. Documents without
// tokens are in no pack. One thread at a time.
class Packing {
 public:
  // Asks for the lengths of all `documents`, window by window. Throws Error(invalid_argument)
  // naming the option, or a document that is longer than a pack or whose length is below 0.
  Packing(int64_t documents, std::function<int64_t(int64_t)> length, PackingOptions options);

  int64_t packs() const { return first_packs_.back(); }
  // Throws Error(invalid_argument) for a pack outside 0..packs()-1.
  std::vector<PackPart> pack(int64_t number) const;
  // The tokens of a pack that another one of their document follows: those with a target.
  int64_t targets(int64_t number) const { return targets_.at(static_cast<size_t>(number)); }
  // The packs of each window: packs that are made of the same documents.
  std::vector<int64_t> packs_of_windows() const;
  // The fraction of all packs that tokens fill.
  double fill() const;
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }  // Of all documents.
  const PackingOptions& options() const { return options_; }
  std::string describe() const;
  Json to_json() const;

 private:
  using Packs = std::vector<std::vector<PackPart>>;
  Packs window(int64_t number) const;
  int64_t documents_;
  std::function<int64_t(int64_t)> length_;
  PackingOptions options_;
  int64_t tokens_ = 0;
  std::vector<int64_t> first_packs_;  // [window]: the packs before it; and one behind the last.
  std::vector<int32_t> targets_;      // [pack]
  // The windows that were asked for last.
  static constexpr size_t kKept = 64;
  mutable std::map<int64_t, Packs> kept_;
};

// Throws Error(internal) naming the document unless each token is in one pack, and no pack has
// more than its tokens.
void check(const Packing& packing);

}  // namespace trireme::plan
