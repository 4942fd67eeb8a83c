// The origin of samples. A user's own source implements two methods.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/base/hash.h>
#include <trireme/data/batch.h>
#include <trireme/data/image_table.h>
#include <trireme/data/pixels.h>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

namespace data {
// The work of a stage in this process, or in a data service for it.
struct StageUse {
  std::string name;
  double seconds = 0;  // Over all threads.
  int64_t samples = 0;
  int64_t bytes = 0;  // That it gave to the next stage.
  bool in_service = false;

  void add(const StageUse& more) {
    seconds += more.seconds;
    samples += more.samples;
    bytes += more.bytes;
  }
};
// The stage cache of a source, as all processes of the host use it.
struct CacheUse {
  std::string place;  // memory, disk
  int64_t limit = 0, bytes = 0, samples = 0;
  bool is_full = false;  // Some sample did not fit.
  // The samples that this process looked for and found, and those that were not there.
  int64_t hits = 0, misses = 0;

  // The memory that it may take.
  int64_t bytes_in_memory() const { return place == "memory" ? limit : 0; }
};
// A stage cache that a source does not have.
struct CacheAdvice {
  std::string after;   // The stage behind which it would stand.
  int64_t bytes = 0;   // For all samples.
  double seconds = 0;  // The work that it would save for each sample.
};
// The samples that came from a data service, and those that this process made instead.
struct ServedCounts {
  int64_t served = 0, made_here = 0;
  int threads = 0;  // The threads of the servers.
};
}  // namespace data

// Everything that a sample may depend on. Equal draws must give equal examples.
struct Draw {
  Draw(int64_t sample, int64_t of_epoch = 0, uint64_t random = 0)
      : index(sample), epoch(of_epoch), seed(random) {}
  int64_t index;
  int64_t epoch;  // 0 also in evaluations.
  // 64 random bits of this sample in this epoch, for augmentation. They do not depend on the
  // number of ranks or threads, and are the same in a resumed run.
  uint64_t seed;
};

// The facts that a source knows of a sample without reading it.
struct SampleSize {
  int64_t length = 0;  // Along the first dimension of its tensors.
  // The targets that count, if samples do not count alike: see Batch::global_targets.
  std::optional<int64_t> targets = {};
};

// The draws of several samples of one epoch.
struct Draws {
  Draws() = default;
  Draws(std::vector<int64_t> samples, int64_t of_epoch = 0, uint64_t random = 0)
      : indices(std::move(samples)), epoch(of_epoch), seed(random) {}
  Draws(std::initializer_list<int64_t> samples) : indices(samples) {}
  Draw at(size_t i) const {
    return {indices[i], epoch,
            seeds.empty() ? mix64(seed, static_cast<uint64_t>(epoch), indices[i]) : seeds[i]};
  }
  // The draw of `before`, or of the last sample without one.
  Draw at_before() const {
    if (!before) return at(indices.size() - 1);
    return {*before, epoch,
            seed_before.value_or(mix64(seed, static_cast<uint64_t>(epoch), *before))};
  }
  std::vector<int64_t> indices;
  int64_t epoch = 0;
  uint64_t seed = 0;  // The seed of the whole run.
  // The random bits of each draw, for a source that asks another one under other numbers; empty:
  // they come from `seed`.
  std::vector<uint64_t> seeds = {};
  // The same bits of `before`.
  std::optional<uint64_t> seed_before = {};
  // The place of the global batch in its epoch, and the sample before the first one of `indices`
  // in it. The last one of the global batch stands before its first one. For sources that mix the
  // samples of a batch.
  int64_t consumed = 0;
  std::optional<int64_t> before = {};
  // The length of the longest sample of the global batch (Source::size_of); 0: not known. For
  // sources that pad.
  int64_t longest = 0;
};

// Several threads may call get() at once.
class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t size() const = 0;
  // Returns one sample. Operations of LibTorch that draw random numbers (at::rand, dropout, ...)
  // draw from the sample's own numbers here.
  virtual Example get(const Draw& draw) const = 0;
  // Returns several samples, at least one, stacked along a new first dimension. Override it if
  // there is a faster way than stacking the results of get(). Throws Error(invalid_argument)
  // naming a sample whose shape, or whose names of tensors, differ from the others'.
  virtual Example get_batch(const Draws& draws) const;

  // True for a source that may leave samples out of a batch: by a filter, or because their records
  // are damaged. Such samples count as used.
  virtual bool leaves_out() const { return false; }
  // Returns the samples that are not left out, with a first dimension of 0 if all are. The places
  // in `draws` of the others are added to `left_out`, in ascending order.
  virtual Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const;

  // One sample, or nothing if it is left out.
  virtual std::optional<Example> get_if_kept(const Draw& draw) const { return get(draw); }

  // The size of a sample, for sources whose samples have different lengths or numbers of targets;
  // it is asked for every sample of a global batch, by every rank. Either all samples have one, or
  // none.
  virtual std::optional<SampleSize> size_of(const Draw&) const { return std::nullopt; }

  // True for a source that mixes the samples of a batch (Draws::before): its get() does not.
  virtual bool mixes_batches() const { return false; }

  // For sources that fetch their files ahead of need. announce() says which draws are asked for
  // next, in this order, as get_batch() will have them; reads_ahead() samples are worth it, 0:
  // none. Each announcement is taken back by one release() of the same draws: when they were
  // given, left out or failed, or are not wanted any more.
  virtual int64_t reads_ahead() const { return 0; }
  virtual void announce(const Draws&) const {}
  virtual void release(const Draws&) const {}

  // The work of its stages so far, for the report of a run. Empty: the loader measures the source
  // as one stage.
  virtual std::vector<data::StageUse> stage_use() const { return {}; }
  virtual std::optional<data::CacheUse> cache_use() const { return {}; }
  // Loads a few samples to find it out. Empty: there is a cache, or none would help.
  virtual std::optional<data::CacheAdvice> cache_advice() const { return {}; }
  // The numbers of the records that this process could not read and left out, each once. A record
  // has the same number in every process.
  virtual std::vector<int64_t> bad_records() const { return {}; }
  // Empty for a source that asks no data service.
  virtual std::optional<data::ServedCounts> served() const { return std::nullopt; }
};

// Several samples of a source, one by one, without those that are left out.
struct KeptSamples {
  std::vector<Example> examples;
  std::vector<int64_t> indices;
};
KeptSamples kept_samples(const Source& source, const Draws& draws, std::vector<size_t>& left_out);
// A batch of no samples, with the shapes of those of `source`.
Example batch_of_none(const Source& source);
// The samples of kept_samples() as get_kept() returns them. `none` gives the shapes, if all are
// left out.
Example kept_one_by_one(const Source& source, const Draws& draws, std::vector<size_t>& left_out,
                        const Source& none);

// Throws Error(unsupported) if `source` leaves samples out, or mixes those of a batch: `user`
// takes samples one by one.
void require_single_samples(const Source* source, const char* user);

// Images as float tensors of shape [channels, height, width] in 0..1 (pixel / scale). Targets are
// int64 scalars.
class ImageSource : public Source {
 public:
  // Throws Error(invalid_argument) if pixels or labels do not fill the stated sizes.
  explicit ImageSource(data::ImageTable table);
  // The same without a copy of the images. Several sources may hold the same table.
  explicit ImageSource(std::shared_ptr<const data::ImageTable> table);
  int64_t size() const override;
  Example get(const Draw& draw) const override;
  Example get_batch(const Draws& draws) const override;
  const data::ImageTable& table() const { return *table_; }

 private:
  std::shared_ptr<const data::ImageTable> table_;
  data::PixelScale scale_;
  int64_t image_pixels_ = 0;
};

// Tensors held in memory: row i of `data` and of `target` is sample i. The source may or may not
// see a later change of these tensors.
class TensorSource : public Source {
 public:
  // Throws Error(invalid_argument) if their first sizes differ.
  TensorSource(at::Tensor data, at::Tensor target);
  int64_t size() const override;
  Example get(const Draw& draw) const override;
  Example get_batch(const Draws& draws) const override;

 private:
  at::Tensor data_, target_;
};

}  // namespace trireme
