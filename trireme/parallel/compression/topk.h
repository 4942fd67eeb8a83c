// The compressor that sends the largest values only.
#pragma once
#include <trireme/parallel/compression/compressor.h>

namespace trireme::compression {

// The largest values of each rank, a fraction `ratio` of all, with error feedback (Stich,
// Cordonnier, Jaggi 2018, "Sparsified SGD with memory", algorithm 1, over several workers).
std::unique_ptr<Compressor> make_topk(std::shared_ptr<Group> group, const CompressedBucket& bucket,
                                      const CompressionOptions& options);

}  // namespace trireme::compression
