// Gradients in fewer bytes for one receiver, such as a parameter server: the formats of the
// compressors, without their exchange between ranks.
#pragma once
#include <trireme/parallel/compression/quantised.h>
#include <trireme/plan/compression_plan.h>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace trireme::compression {

// Any thread. bf16, fp16, int8, topk; others have no form for one receiver.
class PushCodec {
 public:
  // Throws Error(unsupported) naming the compression and those that work.
  explicit PushCodec(const plan::CompressionOptions& options);
  ~PushCodec();

  // Whether what an encoded gradient leaves out is to be added to the next one.
  bool has_error_feedback() const { return has_error_feedback_; }
  int64_t bytes_of(int64_t elements) const;
  // `left` may be null; otherwise left[i] = values[i] - the value of its code.
  void encode(const float* values, int64_t elements, std::byte* bytes, float* left) const;
  void decode(const std::byte* bytes, int64_t elements, float* values) const;

 private:
  std::unique_ptr<Codec> blocks_;  // Null: topk.
  double ratio_ = 0;
  bool has_error_feedback_ = false;
};

}  // namespace trireme::compression
