#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/data/pipeline/batch_mix.h>
#include <trireme/data/pipeline/batch_rows.h>
#include <trireme/data/pipeline/mixed_source.h>
#include <trireme/data/pipeline/numbers.h>
#include <trireme/data/pipeline/pipeline_source.h>
#include <trireme/data/pipeline/program.h>
#include <trireme/data/pipeline/sample_cache.h>
#include <trireme/data/stack.h>
#include <trireme/records/mapped_file.h>
#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace trireme::data {
namespace {

constexpr const char* kKey = "data.stages";

// Samples that threads use one after the other.
class SamplePool {
 public:
  std::unique_ptr<Sample> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Sample>();
    std::unique_ptr<Sample> sample = std::move(free_.back());
    free_.pop_back();
    return sample;
  }
  void give_back(std::unique_ptr<Sample> sample) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(sample));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Sample>> free_;
};

class PipelineSource : public Source {
 public:
  PipelineSource(std::shared_ptr<const records::Reader> reader, PipelineOptions options)
      : reader_(std::move(reader)),
        options_(std::move(options)),
        program_(options_.stages, choose_fields(reader_->fields(), options_.fields),
                 options_.image_bytes),
        padding_(padding_of_targets()),
        skipped_(reader_, options_.bad_records) {
    has_filter_ = find_stage(options_.stages, "filter");
    has_map_ = find_stage(options_.stages, "map") || find_stage(options_.stages, "random_map");
    if (program_.cached_stages())
      cache_ = std::make_unique<SampleCache>(reader_, program_, options_);
  }

  int64_t size() const override {
    return options_.subset.empty() ? reader_->size() : options_.subset.size();
  }

  int64_t reads_ahead() const override { return reader_->reads_ahead(); }
  void announce(const Draws& draws) const override {
    reader_->announce(records_of(draws.indices));
  }
  void release(const Draws& draws) const override { reader_->release(records_of(draws.indices)); }

  Example get(const Draw& draw) const override {
    if (const std::optional<Example> one = get_if_kept(draw)) return *one;
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("sample {} is left out", draw.index), "get_kept()");
  }

  std::optional<Example> get_if_kept(const Draw& draw) const override {
    Draws draws({draw.index}, draw.epoch);
    std::vector<size_t> left_out;
    const Example row = load(draws, &draw.seed, left_out);
    if (!left_out.empty()) return std::nullopt;
    Example one{row.data[0], row.target[0]};
    for (const auto& [name, tensor] : row.more) one.more.emplace(name, tensor[0]);
    return one;
  }

  std::optional<SampleSize> size_of(const Draw& draw) const override {
    if (!padding_ || !options_.has_lengths || has_map_) return std::nullopt;
    // A damaged record has no length, and no targets.
    const int64_t length = reader_->length(record_of(draw.index)).value_or(0);
    if (program_.fields().tokens.empty()) return SampleSize{length};
    const int64_t targets = std::max<int64_t>(0, length - 1);
    return SampleSize{targets, targets};
  }

  Example get_batch(const Draws& draws) const override {
    std::vector<size_t> left_out;
    Example batch = get_kept(draws, left_out);
    require_all(draws, left_out);
    return batch;
  }

  std::vector<StageUse> stage_use() const override {
    std::vector<StageUse> use;
    for (const auto& meter : program_.meters())
      use.push_back({meter->name, static_cast<double>(meter->nanoseconds.load()) * 1e-9,
                     meter->samples.load(), meter->bytes.load()});
    return use;
  }
  std::vector<int64_t> bad_records() const override { return skipped_.numbers(); }
  std::optional<CacheUse> cache_use() const override {
    return cache_ ? std::optional(cache_->use()) : std::nullopt;
  }
  std::optional<CacheAdvice> cache_advice() const override {
    return advice_of_cache(*reader_, program_.fields(), options_);
  }
  bool leaves_out() const override { return has_filter_ || skipped_.skips(); }

  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    return load(draws, nullptr, left_out);
  }
  const Stages& batch_stages() const { return program_.batch_stages(); }

 private:
  int64_t record_of(int64_t index) const {
    if (index < 0 || index >= size())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("sample {} is outside 0..{}", index, size() - 1));
    return options_.subset.empty() ? index : options_.subset[index];
  }

  std::vector<int64_t> records_of(const std::vector<int64_t>& samples) const {
    std::vector<int64_t> records;
    records.reserve(samples.size());
    for (const int64_t sample : samples) records.push_back(record_of(sample));
    return records;
  }

  // `seed`, if given, is that of the only sample.
  Example load(const Draws& draws, const uint64_t* seed, std::vector<size_t>& left_out) const {
    std::unique_ptr<Sample> sample = pool_.take();
    const std::shared_ptr<void> at_the_end(nullptr, [&](void*) {
      if (cache_) cache_->count(std::exchange(sample->lookups, {}));
      pool_.give_back(std::move(sample));
    });
    Example batch;
    if (!loads_whole(draws, seed, *sample, left_out, batch))
      batch = rows_of(draws, seed, *sample, left_out);
    return batch.data.defined() ? batch : none_like(*sample);
  }

  // Looks at the files of the records, or at the one of the cache, once behind the last record.
  // False: one has become shorter or was written, and the batch may be wrong.
  bool loads_whole(const Draws& draws, const uint64_t* seed, Sample& sample,
                   std::vector<size_t>& left_out, Example& batch) const {
    if (cache_ && !cache_->is_whole()) return false;  // Nothing comes from it any more.
    std::optional<records::LateChecks> of_records;
    if (!cache_) of_records.emplace();  // A sample must be right before a cache keeps it.
    const auto is_whole = [&] { return cache_ ? cache_->is_whole() : of_records->are_whole(); };
    try {
      batch = rows_of(draws, seed, sample, left_out);
      if (is_whole()) return true;
    } catch (const Error&) {
      if (is_whole()) throw;
    }
    left_out.clear();
    return false;
  }

  Example rows_of(const Draws& draws, const uint64_t* seed, Sample& sample,
                  std::vector<size_t>& left_out) const {
    return goes_alone() ? stacked(draws, seed, sample, left_out)
                        : in_rows(draws, seed, sample, left_out);
  }

  Example in_rows(const Draws& draws, const uint64_t* seed, Sample& sample,
                  std::vector<size_t>& left_out) const {
    BatchRows rows(std::ssize(draws.indices));
    for (size_t i = 0; i < draws.indices.size(); ++i) {
      sample.draw = draws.at(i);
      if (seed) sample.draw.seed = *seed;
      warm_next(draws, i);
      if (!with_place(sample, [&] { return has_row(sample, rows); })) left_out.push_back(i);
    }
    return rows.finish();
  }

  // Writes the row of a sample. False: it is left out.
  bool has_row(Sample& sample, BatchRows& rows) const {
    StageTimer timer(is_measured());
    if (!is_made(sample, timer)) return false;
    begin_row(rows, sample);
    program_.write_row(sample, rows.data_row(), timer);
    program_.write_target(sample, rows.target_row());
    check_label(sample, rows.target_row());
    if (!program_.fields().tokens.empty())
      check_tokens_of(sample, static_cast<const int64_t*>(rows.data_row()),
                      static_cast<const int64_t*>(rows.target_row()),
                      program_.row_shape(sample)[0]);
    rows.end_row();
    return true;
  }

  // The memory of the next record comes while this one is made. A cache may have no need of it.
  void warm_next(const Draws& draws, size_t i) const {
    if (!cache_ && i + 1 < draws.indices.size()) reader_->warm(record_of(draws.indices[i + 1]));
  }

  void begin_row(BatchRows& rows, const Sample& sample) const {
    rows.begin_row(
        program_.row_shape(sample), program_.row_type(), program_.target_shape(sample),
        program_.target_type(sample), [&] { return reader_->place(record_of(sample.draw.index)); },
        program_.fields().image.empty()
            ? "the stage pad, or pack for tokens: records of different lengths"
            : "a stage that makes one shape of them, such as resize or "
              "random_resized_crop");
  }

  // Stages on tensors see each sample alone.
  Example stacked(const Draws& draws, const uint64_t* seed, Sample& sample,
                  std::vector<size_t>& left_out) const {
    std::vector<Example> examples;
    std::vector<int64_t> indices;
    for (size_t i = 0; i < draws.indices.size(); ++i) {
      sample.draw = draws.at(i);
      if (seed) sample.draw.seed = *seed;
      warm_next(draws, i);
      StageTimer timer(is_measured());
      if (with_place(sample, [&] {
            return has_tensors(sample, timer) && program_.run_tensor_steps(sample, timer);
          })) {
        // Functions may have changed tokens and targets.
        if (!program_.fields().tokens.empty() && !has_map_)
          check_tokens_of(sample, sample.example.data.const_data_ptr<int64_t>(),
                          sample.example.target.const_data_ptr<int64_t>(),
                          sample.example.data.numel());
        examples.push_back(std::move(sample.example));
        indices.push_back(draws.indices[i]);
      } else {
        left_out.push_back(i);
      }
    }
    if (examples.empty()) return {};
    return pads() ? pad_examples(examples, indices, *padding_, draws.longest)
                  : stack_examples(examples, indices);
  }

  // Gives the sample its tensors, up to a cache of tensors. False: it is left out.
  bool has_tensors(Sample& sample, StageTimer& timer) const {
    const int64_t record = record_of(sample.draw.index);
    if (program_.caches_tensors())
      if (const std::optional<bool> is_kept = cache_->restore_tensors(record, sample)) {
        timer.spent_in(program_.caching(),
                       [&] { return *is_kept ? trireme::bytes_of(sample.example) : 0; });
        return *is_kept;
      }
    if (!is_made(sample, timer)) return false;
    program_.make_tensors(sample, timer);
    check_label(sample, sample.example.target.const_data_ptr());
    if (!program_.caches_tensors()) return true;
    const bool is_kept = program_.run_steps_to_cache(sample, timer);
    cache_->keep_tensors(record, sample, is_kept);
    return is_kept;
  }

  bool pads() const { return padding_ && !options_.keeps_lengths; }

  // Samples that functions see, or that get another length, are tensors by themselves first.
  bool goes_alone() const {
    return program_.has_tensor_steps() || program_.caches_tensors() || program_.decodes_record() ||
           pads();
  }

  std::optional<PadOptions> padding_of_targets() const {
    std::optional<PadOptions> padding = program_.padding();
    if (padding) padding->pads_target = target_has_length(reader_->fields(), program_.fields());
    return padding;
  }

  // Reads the record and makes its image. False: it cannot be read, and is left out.
  bool is_made(Sample& sample, StageTimer& timer) const {
    const int64_t record = record_of(sample.draw.index);
    const bool caches_images = cache_ && !program_.caches_tensors();
    try {
      if (caches_images && cache_->restore(record, sample)) {
        timer.spent_in(program_.caching(), [&] { return sample.bytes_of_image(); });
      } else {
        reader_->read(record, sample.record);
        program_.find_fields(sample);
        timer.spent_in(program_.reading(), [&] { return sample.bytes_of_record(); });
        program_.make_image(sample, timer);
        if (caches_images) cache_->keep(record, sample);
      }
      program_.finish_image(sample, timer);
      return true;
    } catch (const Error& error) {
      if (!skipped_.take(error, record)) throw;
      return false;
    }
  }

  // Calls `make`, whose errors get the place of the sample's record.
  template <typename Make>
  bool with_place(const Sample& sample, const Make& make) const {
    try {
      return make();
    } catch (const Error& error) {
      throw in_its_place(*reader_, record_of(sample.draw.index), error);
    }
  }

  // A label outside the classes would end the run in the loss, without a name.
  void check_label(const Sample& sample, const void* target) const {
    const FieldChoice& fields = program_.fields();
    if (options_.classes <= 0 || (fields.target.empty() && !program_.decodes_record()) ||
        program_.target_type(sample) != at::kLong || !program_.target_shape(sample).empty())
      return;
    const int64_t label = *static_cast<const int64_t*>(target);
    if (label >= 0 && label < options_.classes) return;
    const std::string name = fields.target.empty() ? "target" : fields.target;
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("{}: the {} is {}, outside 0..{}",
                            reader_->place(record_of(sample.draw.index)), name, label,
                            options_.classes - 1),
                "labels from 0 on, and the right data.classes");
  }

  // The targets are the tokens behind those of the data.
  void check_tokens_of(const Sample& sample, const int64_t* data, const int64_t* target,
                       int64_t count) const {
    if (options_.classes <= 0 || count == 0) return;
    const auto place = [&] { return reader_->place(record_of(sample.draw.index)); };
    check_tokens({data, 1}, options_.classes, place);
    check_tokens({target, static_cast<size_t>(count)}, options_.classes, place);
  }

  // A batch of no samples, with the shapes that a sample has.
  Example none_like(Sample& sample) const {
    {
      const std::lock_guard lock(none_mutex_);
      if (none_.data.defined()) return none_;
    }
    for (int64_t index = 0; index < size(); ++index) {
      std::vector<size_t> left_out;
      const Draws draws({index});
      const Example one = rows_of(draws, nullptr, sample, left_out);
      if (!one.data.defined()) continue;
      Example none{one.data.new_empty(sizes_without_rows(one.data)),
                   one.target.new_empty(sizes_without_rows(one.target))};
      for (const auto& [name, tensor] : one.more)
        none.more.emplace(name, tensor.new_empty(sizes_without_rows(tensor)));
      const std::lock_guard lock(none_mutex_);
      return none_ = none;
    }
    throw Error(ErrorCode::invalid_argument, "data", "all samples of the data set are left out",
                "a filter that keeps some, or files whose records can be read");
  }

  static std::vector<int64_t> sizes_without_rows(const at::Tensor& rows) {
    std::vector<int64_t> sizes = rows.sizes().vec();
    sizes[0] = 0;
    return sizes;
  }

  static bool is_measured() {
    thread_local int64_t samples = 0;
    return ++samples % StageTimer::kEvery == 0;
  }

  const std::shared_ptr<const records::Reader> reader_;
  const PipelineOptions options_;
  const Program program_;
  const std::optional<PadOptions> padding_;
  bool has_filter_ = false;
  bool has_map_ = false;  // A function may change the length of a sample.
  std::unique_ptr<const SampleCache> cache_;
  mutable SamplePool pool_;
  SkippedRecords skipped_;
  mutable std::mutex none_mutex_;
  mutable Example none_;
};

}  // namespace

std::shared_ptr<const Source> make_pipeline(std::shared_ptr<const records::Reader> reader,
                                            PipelineOptions options) {
  options.fields.decoded = decoded_shape(options.stages);
  const FieldChoice fields = choose_fields(reader->fields(), options.fields);
  check_forms(kKey, options.stages, first_form(fields, options.stages));
  const int64_t classes = options.classes;
  const auto wrap = std::move(options.wrap);
  const auto samples = std::make_shared<PipelineSource>(std::move(reader), std::move(options));
  BatchMix mix(samples->batch_stages(), classes);
  std::shared_ptr<const Source> source = wrap ? wrap(samples) : samples;
  return mix.empty() ? source : mix_source(std::move(source), std::move(mix));
}

}  // namespace trireme::data
