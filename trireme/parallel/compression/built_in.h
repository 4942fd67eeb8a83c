// The compressors that come with Trireme. docs/compression.md compares them.
#pragma once
#include <trireme/parallel/compression/compressor.h>

namespace trireme::compression {

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
// The largest values of each rank, a fraction `ratio` of all, with error feedback (Stich,
// Cordonnier, Jaggi 2018, "Sparsified SGD with memory", algorithm 1, over several workers).
std::unique_ptr<Compressor> make_topk(std::shared_ptr<Group> group, const CompressedBucket& bucket,
                                      const CompressionOptions& options);
// Each matrix as a product of two matrices with `rank` columns, with warm start and error feedback
// (Vogels, Karimireddy, Jaggi 2019, "PowerSGD", algorithms 1 and 2). Vectors, and matrices whose
// factors would not be smaller, travel unchanged.
std::unique_ptr<Compressor> make_powersgd(std::shared_ptr<Group> group,
                                          const CompressedBucket& bucket,
                                          const CompressionOptions& options);

}  // namespace trireme::compression
