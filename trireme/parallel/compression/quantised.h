// Reduction of numbers in a shorter format. Each rank sums its own chunk in full precision, so
// that a sum is rounded twice instead of once for each rank.
#pragma once
#include <trireme/parallel/compression/compressor.h>

namespace trireme::compression {

// A format for blocks of numbers. Every block takes the same number of bytes. Any thread.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual int64_t block() const = 0;        // The elements that are encoded together.
  virtual int64_t block_bytes() const = 0;  // The bytes of their code.
  // Encodes `blocks` consecutive blocks of values to bytes, and decodes them. `left` may be null;
  // otherwise left = values - the values of their code.
  virtual void encode(const float* values, int64_t blocks, std::byte* bytes,
                      float* left) const = 0;
  virtual void decode(const std::byte* bytes, int64_t blocks, float* values) const = 0;
};

// Every rank owns one chunk. It takes the encoded parts of all other ranks, adds them to its own
// in rank order in float32, and sends the encoded sum to all. With `error_feedback` the error of
// encoding is added to the next step: the error of the parts that a rank sent, and that of the
// sum that it owns.
std::unique_ptr<Compressor> make_quantised(std::shared_ptr<Group> group,
                                           const CompressedBucket& bucket,
                                           std::unique_ptr<Codec> codec, bool error_feedback);

}  // namespace trireme::compression
