#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/data/pipeline/numbers.h>
#include <trireme/data/pipeline/program.h>
#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace trireme::data {
namespace {

// The same stage has the same key wherever it stands, so that another stage in front of it does
// not change its random numbers. A second one of the same name has another key.
uint64_t key_of(std::string_view name, int64_t occurrence) {
  uint64_t key = 0x7374616765;
  for (const char c : name) key = mix64(key, static_cast<uint64_t>(c));
  return mix64(key, static_cast<uint64_t>(occurrence));
}

[[noreturn]] void refuse_program(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "data", what, remedy);
}

constexpr uint64_t kOfCache = 0x6361636865;  // Instead of the seed of a run.

// The planes of a field of bytes, for stages that take a row of numbers from it as it is.
images::Planes planes_of(const records::Field& field) {
  return {reinterpret_cast<const uint8_t*>(field.bytes.data()), field.shape[0], field.shape[1],
          field.shape[2]};
}

// All tokens but one: the last one, or the first.
void copy_tokens(const records::Field& tokens, size_t first, int64_t* to) {
  const auto size = static_cast<size_t>(plan::bytes_of(tokens.dtype));
  const int64_t count = count_of(tokens) - 1;
  records::Field part = tokens;
  part.bytes = tokens.bytes.subspan(first * size, static_cast<size_t>(count) * size);
  part.shape = {&count, 1};
  copy_numbers(part, to);
}

[[noreturn]] void refuse_record(const std::string& what) {
  throw Error(ErrorCode::corrupt, "data", what, "records with all fields, as the first one has");
}

// Looks at `place` first, and then leaves the field's place there.
const records::Field& field_of(const records::Record& record, const std::string& name,
                               bool encoded, size_t& place) {
  if (place >= record.fields.size() || record.fields[place].name != name) {
    const records::Field* const found = record.find(name);
    if (!found) refuse_record(fmt::format("it has no field {}", name));
    place = static_cast<size_t>(found - record.fields.data());
  }
  const records::Field& field = record.fields[place];
  if (field.encoded != encoded)
    refuse_record(fmt::format("its field {} is {}", name,
                              encoded ? "numbers" : "a text or a file in itself"));
  return field;
}

}  // namespace

void check_channels(std::string_view stage, size_t numbers, int64_t channels) {
  if (numbers > 1 && std::cmp_not_equal(numbers, channels))
    refuse_program(fmt::format("{} has numbers for {} channels, and the image has {}", stage,
                               numbers, channels),
                   "a number for each channel, or one for all");
}

PadOptions pad_options_of(const Stage& stage) {
  return {.multiple = static_cast<int64_t>(stage.number("multiple")),
          .value = stage.number("value")};
}

Program::Program(const Stages& stages, FieldChoice fields, int64_t image_bytes)
    : fields_(std::move(fields)) {
  add_meter("read");
  std::map<std::string_view, int64_t> seen;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    const StageForm& form = *stage.form;
    const uint64_t key = key_of(form.name, seen[form.name]++);
    const std::string name(form.name);
    if (form.name == "cache") {
      add_cache(stages, i);
    } else if (form.name == "decode_record") {
      decode_record_ = make_record_step(stage, find_stage(stages, "pad"));
      writing_ = add_meter(name_with_function(stage));
    } else if (form.kind == StageKind::pad) {
      padding_ = pad_options_of(stage);
    } else if (form.kind == StageKind::mix) {
      batch_stages_.push_back(stage);
    } else if (form.name == "normalise") {
      const std::vector<double>&mean = stage.numbers("mean"), &std = stage.numbers("std");
      norm_channels_ = std::max(mean.size(), std.size());
      if (mean.size() > 1 && std.size() > 1 && mean.size() != std.size())
        refuse_program(
            fmt::format("normalise has {} means and {} deviations", mean.size(), std.size()),
            "as many of both, or one for all");
      is_normalised_ = true;
      if (stage.word("type") == "bfloat16") number_type_ = at::kBFloat16;
      for (size_t channel = 0; channel < row_form_.mean.size(); ++channel) {
        row_form_.mean[channel] = static_cast<float>(mean[std::min(channel, mean.size() - 1)]);
        row_form_.std[channel] = static_cast<float>(std[std::min(channel, std.size() - 1)]);
      }
      writing_ = add_meter(name);
    } else if (form.gives == SampleForm::image) {
      if (fields_.image.empty())
        refuse_program(
            fmt::format("the stage {} takes an image, and the inputs are numbers", form.name),
            "data.inputs: the field of an image");
      bool took_next = false;
      const Stage* next = i + 1 < stages.size() ? &stages[i + 1] : nullptr;
      ImageStep step = make_image_step(stage, next, image_bytes, took_next);
      uint64_t step_key = key;
      std::string step_name = name;
      if (took_next) {
        step_key = key_of(next->form->name, seen[next->form->name]++);
        step_name += "+" + std::string(next->form->name);
        ++i;
      }
      StageMeter* const meter = add_meter(std::move(step_name));
      image_steps_.push_back({std::move(step), step_key, meter});
    } else if (form.name == "erase" && tensor_steps_.empty() && !erase_ && !caches_tensors_ &&
               !decode_record_) {
      erase_ = erase_options_of(stage);
      erase_key_ = key;
      erase_channels_ = stage.numbers("value").size();
    } else {
      StageMeter* const meter = add_meter(name_with_function(stage));
      tensor_steps_.push_back({make_tensor_step(stage), key, meter});
    }
  }
  if (!writing_) writing_ = add_meter("collate");
  if (image_steps_.empty() && !fields_.image.empty() && !fields_.shape)
    refuse_program(
        fmt::format("the field {} is a file in itself, and no stage decodes it", fields_.image),
        "data.stages=\"decode | ...\"");
}

void Program::add_cache(const Stages& stages, size_t place) {
  cached_.emplace(stages.begin(), stages.begin() + static_cast<std::ptrdiff_t>(place));
  caches_tensors_ =
      fields_.image.empty() || std::ranges::any_of(*cached_, [](const Stage& stage) {
        return stage.form->kind == StageKind::sample && stage.form->gives == SampleForm::tensors;
      });
  if (caches_tensors_ && !writing_) writing_ = add_meter("collate");
  first_behind_cache_ = image_steps_.size();
  first_step_behind_cache_ = std::ssize(tensor_steps_);
  caching_ = add_meter(std::string(stages[place].form->name));
}

StageMeter* Program::add_meter(std::string name) {
  meters_.push_back(std::make_unique<StageMeter>(std::move(name)));
  return meters_.back().get();
}

void Program::make_image(Sample& sample, StageTimer& timer) const {
  if (decode_record_) return run_record_step(sample, timer);
  sample.planes = {};
  sample.flip_horizontally = sample.flip_vertically = false;
  if (sample.used.image && !sample.used.image->encoded)
    sample.planes = planes_of(*sample.used.image);
  const size_t last = cached_ ? first_behind_cache_ : image_steps_.size();
  run_image_steps(sample, timer, 0, last);
}

void Program::finish_image(Sample& sample, StageTimer& timer) const {
  if (cached_) run_image_steps(sample, timer, first_behind_cache_, image_steps_.size());
}

void Program::run_record_step(Sample& sample, StageTimer& timer) const {
  for (const std::string& name : *fields_.decoded)
    if (!sample.record.find(name)) refuse_record(fmt::format("it has no field {}", name));
  sample.example = decode_record_(sample.record, sample.draw.index);
  timer.spent_in(*writing_, [&] { return trireme::bytes_of(sample.example); });
}

void Program::run_image_steps(Sample& sample, StageTimer& timer, size_t first, size_t last) const {
  for (size_t i = first; i < last; ++i) {
    const auto& [run, key, meter] = image_steps_[i];
    run(sample, mix64(sample.draw.seed, key));
    timer.spent_in(*meter, [&] { return sample.bytes_of_image(); });
  }
}

void Program::find_fields(Sample& sample) const {
  UsedFields& used = sample.used;
  used.places.resize(fields_.inputs.size() + 3);
  size_t* place = used.places.data();
  const auto find = [&](const std::string& name, bool encoded) {
    return name.empty() ? nullptr : &field_of(sample.record, name, encoded, *place++);
  };
  used.image = find(fields_.image, !fields_.shape);
  used.inputs.clear();
  for (const std::string& name : fields_.inputs) used.inputs.push_back(find(name, false));
  used.target = find(fields_.target, false);
  used.tokens = find(fields_.tokens, false);
  if (used.tokens && count_of(*used.tokens) < 2)
    refuse_record("it has fewer than two tokens, and a sample needs one and the next one");
}

void Program::find_target(Sample& sample) const {
  size_t place = 0;
  sample.used.target =
      fields_.target.empty() ? nullptr : &field_of(sample.record, fields_.target, false, place);
}

at::DimVector Program::row_shape(const Sample& sample) const {
  const UsedFields& used = sample.used;
  if (!fields_.image.empty()) return {sample.channels(), sample.height(), sample.width()};
  if (used.tokens) return {std::max<int64_t>(0, count_of(*used.tokens) - 1)};
  if (used.inputs.size() == 1)
    if (const auto shape = used.inputs[0]->shape; !shape.empty())
      return {shape.begin(), shape.end()};
  int64_t numbers = 0;
  for (const records::Field* const input : used.inputs) numbers += count_of(*input);
  return {numbers};
}

void Program::write_row(const Sample& sample, void* row, StageTimer& timer) const {
  check_channels("normalise", norm_channels_, sample.channels());
  if (erase_) check_channels("erase", erase_channels_, sample.channels());
  if (!fields_.image.empty()) {
    write_image(sample, row);
  } else if (sample.used.tokens) {
    copy_tokens(*sample.used.tokens, 0, static_cast<int64_t*>(row));
  } else {
    auto* out = static_cast<float*>(row);
    for (const records::Field* const input : sample.used.inputs) {
      copy_numbers(*input, out);
      out += count_of(*input);
    }
  }
  if (erase_ && number_type_ == at::kBFloat16)
    erase_part(sample, static_cast<uint16_t*>(row));
  else if (erase_)
    erase_part(sample, static_cast<float*>(row));
  timer.spent_in(*writing_, [&] { return bytes_of_row(sample); });
}

int64_t Program::bytes_of_row(const Sample& sample) const {
  auto bytes = static_cast<int64_t>(c10::elementSize(row_type()));
  for (const int64_t size : row_shape(sample)) bytes *= size;
  return bytes;
}

void Program::write_image(const Sample& sample, void* out) const {
  if (!is_normalised_) return write_plain(sample, static_cast<float*>(out));
  images::RowOptions form = row_form_;
  form.flip_horizontally = sample.flip_horizontally;
  form.flip_vertically = sample.flip_vertically;
  const auto write = [&](auto* numbers) {
    if (sample.planes.pixels)
      images::write_row(sample.planes, form, numbers);
    else
      images::write_row(sample.image, form, numbers);
  };
  if (number_type_ == at::kBFloat16)
    write(static_cast<uint16_t*>(out));
  else
    write(static_cast<float*>(out));
}

// The bits of an ImageSource, so that a stage such as a crop changes none of them.
void Program::write_plain(const Sample& sample, float* out) {
  static const PixelScale scale(255);
  static const std::array<float, 256> numbers = [] {
    std::array<uint8_t, 256> pixels{};
    for (size_t pixel = 0; pixel < pixels.size(); ++pixel)
      pixels[pixel] = static_cast<uint8_t>(pixel);
    std::array<float, 256> all{};
    scale.convert(pixels.data(), std::ssize(pixels), all.data());
    return all;
  }();
  const int64_t channels = sample.channels(), height = sample.height(), width = sample.width();
  const bool are_planes = sample.planes.pixels != nullptr;
  const uint8_t* const pixels = are_planes ? sample.planes.pixels : sample.image.pixels.data();
  if (are_planes && !sample.flip_horizontally && !sample.flip_vertically)
    return scale.convert(pixels, channels * height * width, out);
  // The distances between channels, and between pixels.
  const int64_t plane = are_planes ? height * width : 1, step = are_planes ? 1 : channels;
  for (int64_t channel = 0; channel < channels; ++channel)
    for (int64_t y = 0; y < height; ++y) {
      const int64_t row = (sample.flip_vertically ? height - 1 - y : y) * width;
      for (int64_t x = 0; x < width; ++x) {
        const int64_t at = row + (sample.flip_horizontally ? width - 1 - x : x);
        *out++ = numbers[pixels[channel * plane + at * step]];
      }
    }
}

template <typename Number>
void Program::erase_part(const Sample& sample, Number* row) const {
  images::Random random(mix64(sample.draw.seed, erase_key_));
  const images::Size size{sample.height(), sample.width()};
  if (const auto erased = images::random_erase(size, *erase_, random))
    images::write_erased(*erased, sample.channels(), size, row);
}

at::DimVector Program::target_shape(const Sample& sample) const {
  if (!fields_.tokens.empty() || fields_.target.empty())
    return decode_record_ ? at::DimVector(sample.example.target.sizes()) : row_shape(sample);
  const auto shape = sample.used.target->shape;
  return {shape.begin(), shape.end()};
}

at::ScalarType Program::target_type(const Sample& sample) const {
  if (!fields_.tokens.empty()) return at::kLong;
  if (fields_.target.empty())
    return decode_record_ ? sample.example.target.scalar_type() : row_type();
  return is_whole(sample.used.target->dtype) ? at::kLong : at::kFloat;
}

void Program::write_target(const Sample& sample, void* target) const {
  if (!fields_.tokens.empty()) {
    return copy_tokens(*sample.used.tokens, 1, static_cast<int64_t*>(target));
  }
  if (fields_.target.empty()) {
    StageTimer untimed(false);
    return write_row(sample, target, untimed);
  }
  if (target_type(sample) == at::kLong)
    copy_numbers(*sample.used.target, static_cast<int64_t*>(target));
  else
    copy_numbers(*sample.used.target, static_cast<float*>(target));
}

void Program::make_tensors(Sample& sample, StageTimer& timer) const {
  if (decode_record_) return;
  const at::Tensor data = at::empty(row_shape(sample), row_type());
  const at::Tensor target = at::empty(target_shape(sample), target_type(sample));
  write_row(sample, data.mutable_data_ptr(), timer);
  write_target(sample, target.mutable_data_ptr());
  sample.example = {data, target};
}

bool Program::run_steps_to_cache(Sample& sample, StageTimer& timer) const {
  if (first_step_behind_cache_ == 0) return true;
  const Draw draw =
      std::exchange(sample.draw, Draw(sample.draw.index, 0, mix64(kOfCache, sample.draw.index)));
  const bool is_kept = run_tensor_steps(sample, timer, 0, first_step_behind_cache_);
  sample.draw = draw;
  return is_kept;
}

bool Program::run_tensor_steps(Sample& sample, StageTimer& timer) const {
  return run_tensor_steps(sample, timer, first_step_behind_cache_, std::ssize(tensor_steps_));
}

bool Program::run_tensor_steps(Sample& sample, StageTimer& timer, int64_t first,
                               int64_t last) const {
  for (int64_t i = first; i < last; ++i) {
    const auto& [run, key, meter] = tensor_steps_[static_cast<size_t>(i)];
    const bool is_kept = run(sample, mix64(sample.draw.seed, key));
    timer.spent_in(*meter, [&] { return is_kept ? trireme::bytes_of(sample.example) : 0; });
    if (!is_kept) return false;
  }
  return true;
}

}  // namespace trireme::data
