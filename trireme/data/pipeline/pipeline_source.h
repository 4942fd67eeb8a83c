// A source that runs stages on the records of a reader.
#pragma once
#include <trireme/data/input_memory.h>
#include <trireme/data/pipeline/cache_budget.h>
#include <trireme/data/pipeline/field_choice.h>
#include <trireme/data/pipeline/skipped_records.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/data/source.h>
#include <trireme/plan/split.h>
#include <trireme/records/record.h>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme::data {

struct PipelineOptions {
  Stages stages;
  FieldWishes fields;
  BadRecords bad_records;
  // The records that count, in ascending order; empty: all of them.
  plan::Subset subset = {};
  // The reader's index knows the lengths of the inputs: Reader::length().
  bool has_lengths = false;
  // The stage pad is the caller's: get_if_kept() gives samples of their own lengths.
  bool keeps_lengths = false;
  int64_t classes = 0;                 // The targets lie in 0..classes-1; 0: not known.
  int64_t image_bytes = kMostOfImage;  // The most memory of one image: see image_limits().
  // For the stage `cache` in memory: the bytes that all sources with the same budget take
  // together; null: three quarters of what input_memory() gives, for this one alone.
  std::shared_ptr<CacheBudget> cache_budget = {};
  // For a cache on a disk: its folder (empty: one of the user's), and the bytes of all caches in
  // it
  // (-1: a quarter of the free space).
  std::filesystem::path cache_dir = {};
  int64_t disk_bytes = -1;
  std::string part = {};  // A text that differs if the files are those of another part.
  // Stands between the samples and the stages that mix those of a batch, if it is given.
  std::function<std::shared_ptr<const Source>(std::shared_ptr<const Source>)> wrap = {};
};

// Throws Error(invalid_argument) as check_forms() and choose_fields() do. All sources of a reader
// may share it.
std::shared_ptr<const Source> make_pipeline(std::shared_ptr<const records::Reader> reader,
                                            PipelineOptions options);

}  // namespace trireme::data
