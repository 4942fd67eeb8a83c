// The compressor that sends matrices of low rank.
#pragma once
#include <trireme/parallel/compression/compressor.h>

namespace trireme::compression {

// Each matrix as a product of two matrices with `rank` columns, with warm start and error feedback
// (Vogels, Karimireddy, Jaggi 2019, "PowerSGD", algorithms 1 and 2). Vectors, and matrices whose
// factors would not be smaller, travel unchanged.
std::unique_ptr<Compressor> make_powersgd(std::shared_ptr<Group> group,
                                          const CompressedBucket& bucket,
                                          const CompressionOptions& options);

}  // namespace trireme::compression
