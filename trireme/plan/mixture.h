// Samples of several sources in stated shares. The source of each place of an epoch is computed by
// itself, and the counts are exact. Pure.
#pragma once
#include <trireme/base/json.h>
#include <trireme/plan/block_sizes.h>
#include <trireme/plan/data_position.h>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::plan {

struct SourceSize {
  std::string name;  // For messages.
  int64_t samples = 0;
  DataBlocks blocks;  // See OrderOptions.
};

// The shares from a position on, until those of the next position.
struct Weights {
  DataPosition from;
  std::vector<double> weights;  // [source], in any unit. 0: the source is not used.
};

enum class WhenExhausted {
  stop,         // The epoch ends when the first source has no more samples.
  repeat,       // The source begins its next pass, in another order.
  renormalise,  // The other sources share its places. The epoch ends when all have been used.
};
std::string_view to_string(WhenExhausted what);
// Throws Error(invalid_argument) naming the choices.
WhenExhausted when_exhausted(std::string_view text);

struct MixtureOptions {
  std::vector<SourceSize> sources;
  std::vector<Weights> weights;  // The first from {0, 0}, the others behind each other.
  WhenExhausted when = WhenExhausted::repeat;
  // With repeat, the places of an epoch; 0: as many as the sources have samples.
  int64_t samples = 0;
};

// With repeat, the passes of a source go on from epoch to epoch: an epoch that takes half of a
// source leaves the other half to the next one. Otherwise each epoch is a pass. Any thread.
class Mixture {
 public:
  // Throws Error(invalid_argument) naming the source or the weights. With stop and renormalise all
  // epochs must have the same length, so weights may change only at positions of epoch 0, and the
  // change is that of every epoch.
  explicit Mixture(MixtureOptions options);

  struct Place {
    size_t source = 0;
    int64_t pass = 0, place = 0;  // In the source's own order of this pass.
  };
  // The numbers of an epoch's samples: each place of the epoch has another one.
  struct Sample {
    size_t source = 0;
    int64_t pass = 0, index = 0;  // The sample of the source.
  };

  int64_t samples() const { return samples_; }  // The places of an epoch.
  int64_t numbers() const { return bases_.back(); }
  Place at(int64_t epoch, int64_t place) const;
  // The number of a sample in this epoch: base of the source + pass of this epoch * size + index.
  int64_t number_of(int64_t epoch, const Sample& sample) const;
  // Throws Error(invalid_argument) for a number outside 0..numbers()-1.
  Sample sample_of(int64_t epoch, int64_t number) const;
  // [source]: the samples that an epoch takes before `place`.
  std::vector<int64_t> counts(int64_t epoch, int64_t place) const;

  const MixtureOptions& options() const { return options_; }
  std::string describe() const;  // A line for each source and change.
  Json to_json() const;
  // Throws Error(invalid_argument) for a value that to_json() cannot have made.
  static Mixture from_json(const Json& json);

 private:
  // The places of a part of an epoch, divided among two groups of sources: `left` of them to the
  // first group, spread evenly. A leaf has one source.
  struct Node {
    int64_t places = 0, left = 0;
    int first = -1, second = -1;
    size_t source = 0;
  };
  // Neighbouring places with the same shares.
  struct Stretch {
    int64_t begin = 0, end = 0;
    std::vector<int64_t> before, counts;  // [source]: in this epoch before it, and in it.
    std::vector<Node> nodes;              // The last is the root.
  };
  // Epochs that are alike.
  struct Epochs {
    int64_t first = 0;
    std::vector<int64_t> before, counts;  // [source]: in all epochs before, and in each of these.
    std::vector<Stretch> stretches;
  };
  friend struct MixtureMaker;
  friend void check(const Mixture& mixture);
  const Epochs& epochs_at(int64_t epoch) const;
  // The samples of a source that were used before an epoch, counted over all passes.
  int64_t used_before(const Epochs& epochs, int64_t epoch, size_t source) const;

  MixtureOptions options_;
  int64_t samples_ = 0;
  std::vector<Epochs> epochs_;
  std::vector<int64_t> bases_;  // [source]: its first number; and one behind the last.
};

// In each prefix of a stretch of equal weights, the count of a source differs from its share of
// the stretch by less than this. The sources are joined two by two, the smallest first (as in a
// code of Huffman), and each pair is spread with an error of at most 1/2.
inline constexpr double kMixtureBound = 2;

// Throws Error(internal) naming the source unless its places follow each other within and between
// epochs, and its counts are as announced. Walks the places around each change, and all of an
// epoch of up to 2^20 places.
void check(const Mixture& mixture);

}  // namespace trireme::plan
