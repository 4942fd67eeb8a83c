// The way of samples from their files to batches as a value in C++: what `data` of a configuration
// says, for programmes with a loop of their own.
#pragma once
#include <trireme/data/loader.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/source.h>
#include <trireme/models/shapes.h>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

class World;

// Each function returns another pipeline and leaves this one as it is. No file is read before
// open(). The stages, orders and keys are those of docs/input.md.
//
//   const Pipeline photos = Pipeline("image_folder", "photos/train")
//                               .then("decode | random_resized_crop(224) | flip")
//                               .cache().then("normalise(imagenet)").batch(256);
//   const auto [train, test, options, input] = photos.open();
//   Loader loader(world, train, options);
class Pipeline {
 public:
  // The files of a format, or a data set that has a name.
  Pipeline(std::string_view name, std::string_view path);
  // Record i has the fields of record i of each entry.
  static Pipeline zip(const std::vector<Pipeline>& entries);
  // Samples of several pipelines in shares of these weights. Each has its own stages. Equal
  // weights and shuffle("none") interleave them: each round has the next sample of each pipeline.
  static Pipeline mix(const std::vector<std::pair<double, Pipeline>>& sources);

  // Further stages, as data.stages has them: "random_crop(32, padding=4) | flip". Throws
  // Error(invalid_argument) naming a stage or a value that is wrong.
  Pipeline then(std::string_view stages) const;
  // Functions of the programme as stages, without a name. The ranks of a job must make their
  // pipelines in the same order, and so must later jobs that use the same cache("disk").
  // `version` is that of register_map(): a cache on a disk behind the function needs it.
  // decode_record() needs set("classes", ...) and the shape of the data that its function gives.
  Pipeline decode_record(const std::vector<int64_t>& shape, DecodeFunction function,
                         const std::string& version = "") const;
  Pipeline map(MapFunction function, const std::string& version = "") const;
  Pipeline random_map(MapFunction function, const std::string& version = "") const;
  Pipeline filter(FilterFunction function, const std::string& version = "") const;
  Pipeline cache(std::string_view place = "memory") const;
  Pipeline take(int64_t samples) const;
  Pipeline repeat(int64_t times) const;
  Pipeline pack(int64_t tokens) const;
  Pipeline bucket(int64_t window = 100) const;
  Pipeline pad(int64_t multiple = 1) const;

  // full, index, blocks or none.
  Pipeline shuffle(std::string_view order) const;
  Pipeline batch(int64_t samples) const;  // The global batch.
  Pipeline prefetch(int threads, int batches) const;
  // Any other key of `data`: set("test_fraction", "0.1") is data.test_fraction.
  Pipeline set(std::string_view key, std::string_view value) const;

  // What --set takes, for load_options() and `trireme train`.
  std::vector<std::string> settings() const;
  // One setting in each line.
  std::string describe() const;
  // The digest of the input plan (run/input_plan.h): equal for pipelines that give the same
  // samples of the same files in the same order, whatever their paths, threads and caches are. A
  // function counts by its place and its version, because nothing knows what it does. Throws as
  // open() does for wrong settings, and reads no file.
  std::string digest() const;

  struct Opened {
    std::shared_ptr<const Source> train, test;  // test may be null.
    LoaderOptions options;                      // For the batches of `train`.
    models::InputSpec input;                    // The form of a sample.
  };
  // Checks all settings, then reads the files' indexes. `seed` is that of order and random stages.
  // Throws Error naming the key or the file.
  Opened open(uint64_t seed = 0) const;
  // The same in a job, whose workers need one choice if `cache` is auto. Then it is COLLECTIVE
  // over them, connects them with one replica each, and worker 0 chooses for all
  // (run/place_cache.h).
  Opened open(World& world, uint64_t seed = 0) const;

 private:
  Pipeline() = default;
  Pipeline then_with(std::string_view stage, const std::string& value) const;
  Opened open_in_job(World* world, uint64_t seed) const;

  std::map<std::string, std::string> values_;  // By the key without "data.".
};

}  // namespace trireme
