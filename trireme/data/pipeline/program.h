// The stages of a pipeline as steps that run: a record becomes a row of a batch.
#pragma once
#include <ATen/core/DimVector.h>
#include <trireme/data/pad.h>
#include <trireme/data/pipeline/field_choice.h>
#include <trireme/data/pipeline/functions.h>
#include <trireme/data/pipeline/sample.h>
#include <trireme/data/pipeline/stage.h>
#include <trireme/data/pipeline/stage_meter.h>
#include <trireme/data/pixels.h>
#include <trireme/images/rows.h>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::data {

// Changes the image of a sample. `random` has 64 bits of this sample, epoch and stage.
using ImageStep = std::function<void(Sample& sample, uint64_t random)>;
// Changes the tensors of a sample. False leaves it out.
using TensorStep = std::function<bool(Sample& sample, uint64_t random)>;

// The step of a stage that gives an image (image_steps.cc). `next` is the stage behind it, or
// null. A decoder that cuts a part out does the work of `next` too, and sets `took_next`. An image
// has at most `image_bytes`.
ImageStep make_image_step(const Stage& stage, const Stage* next, int64_t image_bytes,
                          bool& took_next);
// The image of a sample as pixels with rows, columns and channels (image_steps.cc).
images::Image& pixels_of(Sample& sample);
// The function of the stage decode_record, whose results are checked (record_step.cc). It throws
// Errors that name stage and function. With `is_padded` the data may be shorter than its shape.
DecodeFunction make_record_step(const Stage& stage, bool is_padded);
// The step of a stage from tensors to tensors (tensor_steps.cc).
TensorStep make_tensor_step(const Stage& stage);
images::EraseOptions erase_options_of(const Stage& stage);
// Throws Error(invalid_argument) if the stage has several numbers, but not one for each channel.
void check_channels(std::string_view stage, size_t numbers, int64_t channels);
// Those of the stage pad, without `pads_target`.
PadOptions pad_options_of(const Stage& stage);

// Several threads may use a program, each with samples of its own.
class Program {
 public:
  // `image_bytes` is the most memory of one image. Throws Error(invalid_argument) naming a
  // function that is not registered, or stages that do not fit the fields.
  Program(const Stages& stages, FieldChoice fields, int64_t image_bytes);

  // Finds the fields of the sample's record. Throws Error(corrupt) if it lacks one, or has it in
  // another form.
  void find_fields(Sample& sample) const;
  // The same for a sample from a cache, whose record has the target alone.
  void find_target(Sample& sample) const;
  // Runs the stages that take the record or give images, up to a cache of images or to the last
  // one. The sample has its record. Behind decode_record it has its tensors.
  void make_image(Sample& sample, StageTimer& timer) const;
  // Runs those behind the cache.
  void finish_image(Sample& sample, StageTimer& timer) const;
  // The stages in front of the cache, or null if there is none.
  const Stages* cached_stages() const { return cached_ ? &*cached_ : nullptr; }
  // Whether the cache keeps tensors, and not images.
  bool caches_tensors() const { return caches_tensors_; }
  StageMeter& caching() const { return *caching_; }
  // The shape of the tensor "data" of a sample, and its type: float32 or bfloat16, or int64 for
  // tokens.
  at::DimVector row_shape(const Sample& sample) const;
  at::ScalarType row_type() const { return fields_.tokens.empty() ? number_type_ : at::kLong; }
  void write_row(const Sample& sample, void* row, StageTimer& timer) const;
  // The target of a sample by itself: its shape, its type and its numbers.
  at::DimVector target_shape(const Sample& sample) const;
  at::ScalarType target_type(const Sample& sample) const;
  void write_target(const Sample& sample, void* target) const;

  // The sample, whose image is finished, gets tensors of its own, unless decode_record made them.
  void make_tensors(Sample& sample, StageTimer& timer) const;
  // Runs the stages on tensors in front of a cache of tensors. They see the number of the sample
  // alone, because what they make is for every epoch. False: a filter leaves the sample out.
  bool run_steps_to_cache(Sample& sample, StageTimer& timer) const;
  // The same for those behind it, or for all.
  bool has_tensor_steps() const { return std::ssize(tensor_steps_) > first_step_behind_cache_; }
  bool run_tensor_steps(Sample& sample, StageTimer& timer) const;

  // The meters of all stages, in their order; the first one is that of reading.
  const std::vector<std::unique_ptr<StageMeter>>& meters() const { return meters_; }
  StageMeter& reading() const { return *meters_.front(); }
  const FieldChoice& fields() const { return fields_; }
  bool decodes_record() const { return static_cast<bool>(decode_record_); }
  // The padding of a batch, if there is any.
  const std::optional<PadOptions>& padding() const { return padding_; }
  const Stages& batch_stages() const { return batch_stages_; }

 private:
  template <typename Step>
  struct Metered {
    Step run;
    uint64_t key;  // Seeds the stage's random numbers.
    StageMeter* meter;
  };
  StageMeter* add_meter(std::string name);
  void add_cache(const Stages& stages, size_t place);
  void run_record_step(Sample& sample, StageTimer& timer) const;
  void run_image_steps(Sample& sample, StageTimer& timer, size_t first, size_t last) const;
  bool run_tensor_steps(Sample& sample, StageTimer& timer, int64_t first, int64_t last) const;
  void write_image(const Sample& sample, void* out) const;
  static void write_plain(const Sample& sample, float* out);
  template <typename Number>
  void erase_part(const Sample& sample, Number* row) const;
  int64_t bytes_of_row(const Sample& sample) const;

  FieldChoice fields_;
  std::vector<std::unique_ptr<StageMeter>> meters_;
  DecodeFunction decode_record_;  // Null: the fields become tensors as they are.
  std::vector<Metered<ImageStep>> image_steps_;
  size_t first_behind_cache_ = 0;
  std::optional<Stages> cached_;
  bool caches_tensors_ = false;
  int64_t first_step_behind_cache_ = 0;
  StageMeter* caching_ = nullptr;
  images::RowOptions row_form_;  // For an image that a stage normalises.
  size_t norm_channels_ = 1;     // 1: any number.
  bool is_normalised_ = false;
  at::ScalarType number_type_ = at::kFloat;
  StageMeter* writing_ = nullptr;
  // An erase that comes before all other stages on tensors works on the row.
  std::optional<images::EraseOptions> erase_;
  uint64_t erase_key_ = 0;
  size_t erase_channels_ = 1;  // 1: any number.
  std::vector<Metered<TensorStep>> tensor_steps_;
  std::optional<PadOptions> padding_;
  Stages batch_stages_;
};

}  // namespace trireme::data
