#include <ATen/core/Tensor.h>

#include <fmt/format.h>

#include <trireme/base/built_with.h>
#include <trireme/base/error.h>
#include <trireme/base/files.h>
#include <trireme/base/hash.h>
#include <trireme/base/json.h>
#include <trireme/data/input_memory.h>
#include <trireme/data/pipeline/cache_folder.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/kept_tensors.h>
#include <trireme/data/pipeline/sample_cache.h>
#include <trireme/images/decode.h>
#include <trireme/records/index.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

namespace trireme::data {
namespace {

constexpr int64_t kUnknownStamp = std::numeric_limits<int64_t>::min();

CachedSample as_kept(Sample& sample) {
  const images::Image& image = pixels_of(sample);
  CachedSample kept{
      image.height, image.width, image.channels, std::as_bytes(std::span(image.pixels)), {}};
  if (sample.used.target) kept.target = sample.used.target->bytes;
  return kept;
}

// Tensors are one row of bytes.
CachedSample as_kept(const std::vector<std::byte>& tensors) {
  return {1, std::ssize(tensors), 1, tensors, {}};
}

// Runs the stages in front of the cache. The sample has its record. Returns the bytes that the
// sample takes there.
int64_t make_kept(const Program& program, Sample& sample, StageTimer& timer) {
  program.make_image(sample, timer);
  if (!program.caches_tensors()) return CacheStore::bytes_of(as_kept(sample));
  program.make_tensors(sample, timer);
  const bool is_kept = program.run_steps_to_cache(sample, timer);
  return CacheStore::bytes_of(
      as_kept(is_kept ? bytes_of_tensors(sample.example) : bytes_of_left_out()));
}

// The bytes of a sample in the cache of a program, and the seconds that it takes in front of it.
struct SizeOfSample {
  double bytes = 0, seconds = 0;
  int64_t bytes_of(int64_t samples) const {
    constexpr double kSlack = 1.15;  // Others may be larger than those that were looked at.
    return static_cast<int64_t>(kSlack * bytes * static_cast<double>(samples));
  }
};

int64_t samples_of(const records::Reader& reader, const plan::Subset& subset) {
  return subset.empty() ? reader.size() : subset.size();
}

// Looks at a few samples, the same ones in every process.
SizeOfSample size_of_sample(const records::Reader& reader, const Program& program,
                            const plan::Subset& subset) {
  constexpr int64_t kLooksAt = 16;
  const int64_t samples = samples_of(reader, subset);
  const int64_t count = std::min(samples, kLooksAt);
  Sample sample;
  StageTimer untimed(false);
  int64_t bytes = 0, made = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = i * samples / count;
    sample.draw = Draw(index);
    try {
      reader.read(subset.empty() ? index : subset[index], sample.record);
      program.find_fields(sample);
      bytes += make_kept(program, sample, untimed);
      ++made;
    } catch (const Error&) {  // The batch that needs the record names it.
      continue;
    }
  }
  if (made == 0) return {};
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return {static_cast<double>(bytes) / static_cast<double>(made),
          seconds / static_cast<double>(made)};
}

// Whether there is a disk for the folder of caches.
bool has_disk_for_caches(const std::filesystem::path& wish) {
  try {
    const CacheFolder folder(records::index_folder(wish));
    return !is_in_memory(folder.path());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) throw;
    return false;
  }
}

}  // namespace

std::string versions_of_samples() {
  // The first number is that of stages and of the form in which samples are kept.
  constexpr int kOfSamples = 5;
  // LibTorch scales images.
  return fmt::format("samples {}, LibTorch {}, {}", kOfSamples, libtorch_of_build(),
                     images::versions_of_decoders());
}

std::string key_of_cache(const records::Reader& reader, const Program& program,
                         const PipelineOptions& options, const std::string& versions) {
  const FieldChoice& fields = program.fields();
  const Stages& stages = *program.cached_stages();
  Json key = Json::array({versions, options.part, reader.content(), describe(stages), fields.image,
                          fields.target, program.caches_tensors()});
  if (program.caches_tensors()) {
    // A function may look at the number of a sample, which is that of the record in its subset.
    const std::string functions = versions_of_functions(stages).text;
    const std::string subset = functions.empty() ? "" : options.subset.describe();
    // The content of a text is the same for blocks of any length.
    Json forms = Json::array();
    for (const records::FieldSpec& field : reader.fields())
      forms.push_back({field.name, static_cast<int>(field.dtype),
                       field.shape.value_or(std::vector<int64_t>{-1})});
    key.push_back(Json::array({functions, subset, forms, fields.decoded.value_or(fields.inputs),
                               fields.tokens, options.classes}));
  }
  return sha256_hex(key.dump(-1, ' ', false, Json::error_handler_t::replace));
}

SampleCache::SampleCache(std::shared_ptr<const records::Reader> reader, const Program& program,
                         const PipelineOptions& options)
    : reader_(std::move(reader)),
      program_(program),
      options_(options),
      key_(key_of_cache(*reader_, program, options)),
      stamps_(static_cast<size_t>(reader_->size())) {
  for (std::atomic<int64_t>& stamp : stamps_) stamp = kUnknownStamp;
  const FieldChoice& fields = program.fields();
  for (const records::FieldSpec& field : reader_->fields())
    if (field.name == fields.target) target_ = field;
  if (!program.caches_tensors() && !fields.target.empty() && !target_.shape)
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format("cache: the target {} has another length in each record", fields.target),
        "no stage cache, or another data.target");
  place_ = options.stages[program.cached_stages()->size()].word("place");
  const std::string unknown = versions_of_functions(*program.cached_stages()).without_version;
  if (place_ == "disk" && !unknown.empty()) refuse_on_disk(unknown);
  if (place_ == "auto" && !unknown.empty()) place_ = "memory";
  if (place_ == "disk") store();
}

// A function of the same name may make other samples tomorrow, and nothing here would know.
void SampleCache::refuse_on_disk(const std::string& stage) const {
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("cache(disk) stands behind {}, whose function has no version: a later "
                          "job with another function would get its old samples",
                          stage),
              "a version as the last value of register_map(), register_decode() or "
              "register_filter(), or cache(memory)");
}

CacheStore& SampleCache::store() const {
  std::call_once(opened_, [this] { open(); });
  return *store_;
}

void SampleCache::open() const {
  auto budget = options_.cache_budget;
  if (!budget && place_ != "disk")
    budget = CacheBudget::of_process(memory_of_caches(input_memory(-1)));
  SizeOfSample size;
  if (place_ != "memory") size = size_of_sample(*reader_, program_, options_.subset);
  // All processes of a host choose the same place, because budget and samples are the same.
  if (place_ == "auto") {
    budget->find_host();
    const bool fits = budget->plan(size.bytes_of(samples_of(*reader_, options_.subset)));
    place_ = fits || !has_disk_for_caches(options_.cache_dir) ? "memory" : "disk";
  }
  // The parts of one file may have one cache on the disk.
  store_ = place_ == "disk" ? CacheStore::on_disk(records::index_folder(options_.cache_dir), key_,
                                                  reader_->size(), size.bytes_of(reader_->size()),
                                                  options_.disk_bytes)
                            : CacheStore::in_memory(key_, reader_->size(), budget);
}

int64_t SampleCache::stamp_of(int64_t record) const {
  std::atomic<int64_t>& known = stamps_[static_cast<size_t>(record)];
  int64_t stamp = known.load(std::memory_order_relaxed);
  if (stamp != kUnknownStamp) return stamp;
  stamp = reader_->stamp(record);
  known.store(stamp, std::memory_order_relaxed);
  return stamp;
}

bool SampleCache::find(int64_t record, Sample& sample, CachedSample& kept) const {
  const bool is_there = store().find(record, stamp_of(record), kept);
  ++(is_there ? sample.lookups.hits : sample.lookups.misses);
  return is_there;
}

bool SampleCache::restore(int64_t record, Sample& sample) const {
  CachedSample kept;
  if (!find(record, sample, kept)) return false;
  sample.planes = {};
  sample.flip_horizontally = sample.flip_vertically = false;
  sample.image.reshape(kept.height, kept.width, kept.channels);
  std::memcpy(sample.image.pixels.data(), kept.pixels.data(), kept.pixels.size());
  sample.record.clear();
  if (!target_.name.empty())
    sample.record.fields.push_back({.name = target_.name,
                                    .bytes = kept.target,
                                    .dtype = target_.dtype,
                                    .shape = *target_.shape});
  program_.find_target(sample);
  return true;
}

void SampleCache::keep(int64_t record, Sample& sample) const {
  store().add(record, stamp_of(record), as_kept(sample));
}

std::optional<bool> SampleCache::restore_tensors(int64_t record, Sample& sample) const {
  CachedSample kept;
  if (!find(record, sample, kept)) return std::nullopt;
  auto tensors = tensors_in(kept.pixels, !program_.has_tensor_steps());
  if (!tensors) return std::nullopt;
  sample.example = std::move(tensors->example);
  return !tensors->is_left_out;
}

void SampleCache::keep_tensors(int64_t record, const Sample& sample, bool is_kept) const {
  if (store().is_full()) return;  // To pack the tensors takes longer than to ask.
  const std::vector<std::byte> bytes =
      is_kept ? bytes_of_tensors(sample.example) : bytes_of_left_out();
  if (bytes.empty() || bytes.size() > std::numeric_limits<uint32_t>::max()) return;
  store().add(record, stamp_of(record), as_kept(bytes));
}

void SampleCache::count(CacheLookups lookups) const {
  hits_.fetch_add(lookups.hits, std::memory_order_relaxed);
  misses_.fetch_add(lookups.misses, std::memory_order_relaxed);
}

CacheUse SampleCache::use() const {
  const CacheStore& kept = store();
  return {place_,         kept.limit(), kept.bytes(),  kept.stored(),
          kept.is_full(), hits_.load(), misses_.load()};
}

std::optional<CacheAdvice> advice_of_cache(const records::Reader& reader,
                                           const FieldChoice& fields,
                                           const PipelineOptions& options) {
  Stages stages;
  for (const Stage& stage : options.stages) {
    if (stage.form->name == "cache") return std::nullopt;
    if (stage.form->is_random || stage.form->gives != SampleForm::image) break;
    stages.push_back(stage);
  }
  if (stages.empty() || fields.image.empty()) return std::nullopt;
  const std::string after(stages.back().form->name);
  stages.push_back(parse_stages("data.stages", "cache").front());
  const SizeOfSample size =
      size_of_sample(reader, Program(stages, fields, options.image_bytes), options.subset);
  if (size.bytes == 0) return std::nullopt;
  return CacheAdvice{after, size.bytes_of(samples_of(reader, options.subset)), size.seconds};
}

}  // namespace trireme::data
