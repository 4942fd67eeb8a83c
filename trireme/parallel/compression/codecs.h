// Compressors that send each number in a shorter format. docs/compression.md compares them.
#pragma once
#include <trireme/parallel/compression/compressor.h>
#include <string>

namespace trireme::compression {

class Codec;
// The format of bf16, fp16 or int8; null for other names.
std::unique_ptr<Codec> codec_of(const std::string& compression);

// Numbers as bfloat16 (half the bytes, a float's range, 8 bits of precision).
std::unique_ptr<Compressor> make_bf16(std::shared_ptr<Group> group, const CompressedBucket& bucket,
                                      const CompressionOptions& options);
// Numbers as float16 (half the bytes, 11 bits of precision). Each block of 1024 is scaled by a
// power of two into float16's narrow range.
std::unique_ptr<Compressor> make_fp16(std::shared_ptr<Group> group, const CompressedBucket& bucket,
                                      const CompressionOptions& options);
// Numbers as int8 with a scale for each block of 256, and with error feedback: a quarter of the
// bytes (Dettmers 2016, "8-bit approximations for parallelism in deep learning").
std::unique_ptr<Compressor> make_int8(std::shared_ptr<Group> group, const CompressedBucket& bucket,
                                      const CompressionOptions& options);

}  // namespace trireme::compression
