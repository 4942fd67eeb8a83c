#include <trireme/parallel/compression/codecs.h>
#include <trireme/parallel/compression/kernels.h>
#include <trireme/parallel/compression/quantised.h>
#include <algorithm>
#include <cmath>
#include <cstring>

namespace trireme::compression {
namespace {

class Bfloat16 : public Codec {
 public:
  int64_t block() const override { return 1; }
  int64_t block_bytes() const override { return 2; }
  void encode(const float* values, int64_t blocks, std::byte* bytes, float* left) const override {
    to_bf16(values, blocks, reinterpret_cast<uint16_t*>(bytes), left);
  }
  void decode(const std::byte* bytes, int64_t blocks, float* values) const override {
    from_bf16(reinterpret_cast<const uint16_t*>(bytes), blocks, values);
  }
};

// Blocks of codes, each behind one float32 scale. The block's size is a multiple of four bytes, so
// that everything is aligned for its type.
template <typename Code>
class Scaled : public Codec {
 public:
  explicit Scaled(const char* name) : format_(plan::block_format_of(name).value()) {}
  int64_t block() const override { return format_.block; }
  int64_t block_bytes() const override { return format_.block_bytes; }

  void encode(const float* values, int64_t blocks, std::byte* bytes, float* left) const override {
    for (int64_t b = 0; b < blocks; ++b, values += block(), bytes += block_bytes()) {
      const float scale = scale_of(largest_magnitude(values, block()));
      std::memcpy(bytes, &scale, kScaleBytes);
      to_codes(values, scale, reinterpret_cast<Code*>(bytes + kScaleBytes),
               left ? left + b * block() : nullptr);
    }
  }
  void decode(const std::byte* bytes, int64_t blocks, float* values) const override {
    for (int64_t b = 0; b < blocks; ++b, values += block(), bytes += block_bytes()) {
      float scale;
      std::memcpy(&scale, bytes, kScaleBytes);
      from_codes(reinterpret_cast<const Code*>(bytes + kScaleBytes), scale, values);
    }
  }

 protected:
  static constexpr int64_t kScaleBytes = sizeof(float);
  static constexpr float kSmallest = 1e-37F;  // A smaller scale would not be a normal float.
  // The scale of a block whose largest value is `most`. A block of zeros has a scale of 1.
  virtual float scale_of(float most) const = 0;
  virtual void to_codes(const float* values, float scale, Code* codes, float* left) const = 0;
  virtual void from_codes(const Code* codes, float scale, float* values) const = 0;

 private:
  plan::BlockFormat format_;
};

class Int8 : public Scaled<int8_t> {
 public:
  Int8() : Scaled("int8") {}

 private:
  float scale_of(float most) const override {
    return most == 0 ? 1 : std::max(most / 127, kSmallest);
  }
  void to_codes(const float* values, float scale, int8_t* codes, float* left) const override {
    to_int8(values, block(), scale, codes, left);
  }
  void from_codes(const int8_t* codes, float scale, float* values) const override {
    from_int8(codes, block(), scale, values);
  }
};

class Float16 : public Scaled<uint16_t> {
 public:
  Float16() : Scaled("fp16") {}

 private:
  // A power of two costs no precision. It brings the largest value into (16384, 32768], which
  // leaves room for rounding.
  float scale_of(float most) const override {
    if (most == 0) return 1;
    return std::max(std::exp2(std::ceil(std::log2(most / 32768))), kSmallestPower);
  }
  void to_codes(const float* values, float scale, uint16_t* codes, float* left) const override {
    to_fp16(values, block(), scale, codes, left);
  }
  void from_codes(const uint16_t* codes, float scale, float* values) const override {
    from_fp16(codes, block(), scale, values);
  }

  static constexpr float kSmallestPower = 0x1p-122F;
};

}  // namespace

std::unique_ptr<Codec> codec_of(const std::string& compression) {
  if (compression == "bf16") return std::make_unique<Bfloat16>();
  if (compression == "fp16") return std::make_unique<Float16>();
  if (compression == "int8") return std::make_unique<Int8>();
  return nullptr;
}

std::unique_ptr<Compressor> make_bf16(std::shared_ptr<Group> group, const CompressedBucket& bucket,
                                      const CompressionOptions&) {
  return make_quantised(std::move(group), bucket, std::make_unique<Bfloat16>(), false);
}
std::unique_ptr<Compressor> make_fp16(std::shared_ptr<Group> group, const CompressedBucket& bucket,
                                      const CompressionOptions&) {
  return make_quantised(std::move(group), bucket, std::make_unique<Float16>(), false);
}
std::unique_ptr<Compressor> make_int8(std::shared_ptr<Group> group, const CompressedBucket& bucket,
                                      const CompressionOptions&) {
  return make_quantised(std::move(group), bucket, std::make_unique<Int8>(), true);
}

}  // namespace trireme::compression
