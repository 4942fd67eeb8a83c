// Reduction of numbers in a shorter format: each rank sums its own chunk in full precision, so that
// a sum rounds twice, not once a rank.
#pragma once
#include <trireme/parallel/compression/compressor.h>

namespace trireme::compression {

// A format for blocks of numbers; every block takes the same number of bytes. Any thread.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual int64_t block() const = 0;        // Elements that are encoded together.
  virtual int64_t block_bytes() const = 0;  // What they take.
  // `blocks` blocks, one behind the other, of values to bytes, and back. With `left` (may be null):
  // left = values - what their code stands for.
  virtual void encode(const float* values, int64_t blocks, std::byte* bytes, float* left) const = 0;
  virtual void decode(const std::byte* bytes, int64_t blocks, float* values) const = 0;
};

// Every rank is the owner of one chunk: it takes all others' encoded parts, adds them to its own in
// rank order in float32, and hands the encoded sum out. With `error_feedback` what encoding cost is
// added to the next step: of what a rank sent, and of the sum that it owns.
std::unique_ptr<Compressor> make_quantised(std::shared_ptr<Group> group,
                                           const CompressedBucket& bucket,
                                           std::unique_ptr<Codec> codec, bool error_feedback);

}  // namespace trireme::compression
