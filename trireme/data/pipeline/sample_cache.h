// The stage `cache` of a pipeline: it keeps the images of records and their targets, or their
// tensors, and gives them back.
#pragma once
#include <trireme/data/pipeline/cache_store.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/pipeline/program.h>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace trireme::data {

// The versions of everything that makes a sample of a record. Memory and files of a cache are not
// used by a process that has others.
std::string versions_of_samples();

// The key of the cache of a program: it holds all that decides about the kept samples.
std::string key_of_cache(const records::Reader& reader, const Program& program,
                         const PipelineOptions& options,
                         const std::string& versions = versions_of_samples());

// Any thread, with samples of its own.
class SampleCache {
 public:
  // `program` has a stage cache. It and `options` outlive this object. Memory is looked for at the
  // first sample, because another worker of the host may tell of it meanwhile. Throws Error(io),
  // and Error(invalid_argument) if the target of an image has another length in each record, or if
  // a cache on a disk would keep what a function without a version makes.
  SampleCache(std::shared_ptr<const records::Reader> reader, const Program& program,
              const PipelineOptions& options);

  // False: the record is not there. Otherwise the sample has its image and target. Either is noted
  // in the sample's `lookups`.
  bool restore(int64_t record, Sample& sample) const;
  void keep(int64_t record, Sample& sample) const;
  // The same for a cache of tensors. Nothing: the record is not there. False: a filter leaves it
  // out. The tensors of the sample are its own, or views if no stage behind the cache changes
  // them.
  std::optional<bool> restore_tensors(int64_t record, Sample& sample) const;
  void keep_tensors(int64_t record, const Sample& sample, bool is_kept) const;
  // False: what was restored since the last call may be wrong, and from now on nothing is there.
  bool is_whole() const { return store().is_whole(); }
  // Adds the look-ups of a batch to those of the process.
  void count(CacheLookups lookups) const;
  CacheUse use() const;

 private:
  const std::shared_ptr<const records::Reader> reader_;
  records::FieldSpec target_;
  // The stamp of a record as this process saw it first: to ask for the time of a file takes longer
  // than to copy a small image.
  int64_t stamp_of(int64_t record) const;
  void refuse_on_disk(const std::string& stage) const;
  bool find(int64_t record, Sample& sample, CachedSample& kept) const;
  void open() const;
  CacheStore& store() const;

  const Program& program_;
  const PipelineOptions& options_;
  const std::string key_;
  mutable std::vector<std::atomic<int64_t>> stamps_;
  mutable std::once_flag opened_;
  mutable std::string place_;
  mutable std::shared_ptr<CacheStore> store_;
  mutable std::atomic<int64_t> hits_{0}, misses_{0};
};

// The cache that these options lack (Source::cache_advice).
std::optional<CacheAdvice> advice_of_cache(const records::Reader& reader,
                                           const FieldChoice& fields,
                                           const PipelineOptions& options);

}  // namespace trireme::data
