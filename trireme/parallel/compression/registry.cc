#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/config/registry.h>
#include <trireme/config/value.h>
#include <trireme/parallel/compression/codecs.h>
#include <trireme/parallel/compression/powersgd.h>
#include <trireme/parallel/compression/topk.h>

namespace trireme {
namespace {

config::Registry<CompressorFactory>& compressors() {
  static config::Registry<CompressorFactory> known("compressor",
                                                   {{"bf16", compression::make_bf16},
                                                    {"fp16", compression::make_fp16},
                                                    {"int8", compression::make_int8},
                                                    {"topk", compression::make_topk},
                                                    {"powersgd", compression::make_powersgd}},
                                                   "none");
  return known;
}

}  // namespace

void register_compressor(const std::string& name, CompressorFactory factory) {
  compressors().add(name, std::move(factory));
  plan::add_compression(name);  // A configuration may name it.
}

std::vector<std::string> compressor_names() { return compressors().names(); }

void check(const CompressionOptions& options) { config::check_values(options); }

std::unique_ptr<Compressor> make_compressor(std::shared_ptr<Group> group,
                                            const CompressedBucket& bucket,
                                            const CompressionOptions& options) {
  check(options);
  if (bucket.dtype != at::kFloat && bucket.dtype != at::kDouble)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("strategy.compression is {}, but gradients are {}", options.name,
                            c10::toString(bucket.dtype)),
                "strategy.compression=none, or parameters of float32");
  return compressors().find(options.name)(std::move(group), bucket, options);
}

}  // namespace trireme
