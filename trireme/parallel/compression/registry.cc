#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/parallel/compression/built_in.h>
#include <algorithm>
#include <map>
#include <mutex>

namespace trireme {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, CompressorFactory, std::less<>> factories = {
      {"bf16", compression::make_bf16},
      {"fp16", compression::make_fp16},
      {"int8", compression::make_int8},
      {"topk", compression::make_topk},
      {"powersgd", compression::make_powersgd}};
};
Registry& registry() {
  static Registry instance;
  return instance;
}

[[noreturn]] void refuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "parallel", what, remedy);
}

}  // namespace

void register_compressor(const std::string& name, CompressorFactory factory) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  if (name.empty() || name == "none" || !factory)
    refuse(fmt::format("a compressor cannot be named '{}'", name), "another name, and a factory");
  if (!known.factories.emplace(name, std::move(factory)).second)
    refuse(fmt::format("a compressor '{}' already exists", name), "another name");
}

std::vector<std::string> compressor_names() {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : known.factories) names.push_back(name);
  return names;
}

void check(const CompressionOptions& options) {
  const std::vector<std::string> names = compressor_names();
  if (options.name != "none" && std::find(names.begin(), names.end(), options.name) == names.end())
    refuse(fmt::format("strategy.compression is '{}', which is unknown", options.name),
           fmt::format("none, {}", fmt::join(names, ", ")));
  if (options.rank < 1)
    refuse(fmt::format("strategy.compression_rank is {}", options.rank), "1 or more");
  if (!(options.ratio > 0 && options.ratio <= 1))
    refuse(fmt::format("strategy.compression_ratio is {}", options.ratio),
           "above 0, and at most 1");
}

std::unique_ptr<Compressor> make_compressor(std::shared_ptr<Group> group,
                                            const CompressedBucket& bucket,
                                            const CompressionOptions& options) {
  check(options);
  if (bucket.dtype != at::kFloat && bucket.dtype != at::kDouble)
    refuse(fmt::format("strategy.compression is {}, but gradients are {}", options.name,
                       c10::toString(bucket.dtype)),
           "strategy.compression=none, or parameters of float32");
  CompressorFactory factory;
  {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    factory = known.factories.at(options.name);
  }
  return factory(std::move(group), bucket, options);
}

}  // namespace trireme
