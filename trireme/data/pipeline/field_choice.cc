#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/data/pipeline/field_choice.h>
#include <algorithm>
#include <string_view>

namespace trireme::data {
namespace {

using records::FieldSpec;

constexpr std::string_view kTargets[] = {"label", "target", "cls", "class", "y"};
constexpr std::string_view kTokensOfTar = "tokens.npy";  // A member of webdataset.
constexpr std::string_view kImages[] = {"image", "jpg", "jpeg", "png", "webp", "img"};

bool is_number(const FieldSpec& field) {
  return !field.encoded && field.shape && field.shape->empty();
}
bool is_image_of_bytes(const FieldSpec& field) {
  return !field.encoded && field.dtype == plan::DType::uint8 && field.shape &&
         field.shape->size() == 3;
}

class FieldChooser {
 public:
  explicit FieldChooser(const std::vector<FieldSpec>& fields) : fields_(fields) {}

  FieldChoice choose(const FieldWishes& wishes) const {
    if (wishes.decoded) return choose_decoded(wishes);
    FieldChoice choice;
    const FieldSpec* tokens = find("tokens");
    if (!tokens && !has_other_samples()) tokens = find(kTokensOfTar);
    if (tokens && !tokens->encoded && wishes.inputs.empty() && wishes.target.empty()) {
      choice.tokens = tokens->name;
      if (tokens->shape && tokens->shape->size() == 1) choice.shape = {{tokens->shape->at(0) - 1}};
      return choice;
    }
    choice.target = target_of(wishes);
    const std::vector<std::string> wanted = inputs_of(wishes, choice.target);
    // A file that is named alone is an image, whatever its name is.
    const bool is_alone = wanted.size() == 1;
    if (is_alone &&
        (is_image(at("data.inputs", wanted[0])) || at("data.inputs", wanted[0]).encoded)) {
      choice.image = wanted[0];
      if (!at("data.inputs", wanted[0]).encoded) choice.shape = at("", wanted[0]).shape;
      return choice;
    }
    choice.inputs = wanted;
    if (wishes.is_padded && is_alone && is_ragged(at("data.inputs", wanted[0]))) return choice;
    for (const std::string& name : wanted) require_numbers(at("data.inputs", name));
    choice.shape = shape_of(wanted);
    return choice;
  }

 private:
  // In webdataset tokens may also stand beside an image, such as those of its caption, or beside
  // numbers.
  bool has_other_samples() const {
    return std::ranges::any_of(fields_, [&](const FieldSpec& field) {
      return is_image(field) || (!field.encoded && field.name != kTokensOfTar);
    });
  }

  FieldChoice choose_decoded(const FieldWishes& wishes) const {
    if (!wishes.target.empty())
      refuse(fmt::format("data.target is {}, and the function of decode_record makes the target",
                         wishes.target),
             "data.inputs with all fields that the function needs, and no data.target");
    FieldChoice choice{.decoded = names_of_inputs(wishes.inputs), .shape = wishes.decoded};
    for (const std::string& name : *choice.decoded) at("data.inputs", name);
    return choice;
  }

  std::string target_of(const FieldWishes& wishes) const {
    if (!wishes.target.empty()) {
      const FieldSpec& field = at("data.target", wishes.target);
      if (field.encoded)
        refuse(fmt::format("data.target is {}, which is a text or a file, and not numbers",
                           field.name),
               "a field of numbers; a text of a class needs a number for each class");
      return field.name;
    }
    for (const std::string_view name : kTargets)
      if (const FieldSpec* field = find(name)) {
        if (field->encoded)
          refuse(fmt::format("the field {} would be the target, but is a text or a file", name),
                 "data.target: a field of numbers");
        return std::string(name);
      }
    const bool all_numbers = std::ranges::all_of(fields_, is_number);
    return all_numbers && fields_.size() > 1 ? fields_.back().name : "";
  }

  std::vector<std::string> inputs_of(const FieldWishes& wishes, const std::string& target) const {
    std::vector<std::string> inputs;
    if (!wishes.inputs.empty()) {
      for (const std::string& name : names_of_inputs(wishes.inputs)) {
        if (name == target)
          refuse(fmt::format("data.inputs has the field {}, which is the target", name),
                 "other fields, or another data.target");
        inputs.push_back(at("data.inputs", name).name);
      }
      return inputs;
    }
    for (const std::string_view name : kImages)
      if (const FieldSpec* field = find(name); field && is_image(*field))
        return {std::string(name)};
    for (const FieldSpec& field : fields_)
      if (field.name != target && !field.encoded && field.shape) inputs.push_back(field.name);
    if (inputs.empty() && wishes.is_padded)
      for (const FieldSpec& field : fields_)
        if (field.name != target && is_ragged(field)) inputs.push_back(field.name);
    if (inputs.empty())
      refuse("the records have no image and no numbers besides the target",
             list() + ", or the stage decode_record with a function of yours");
    return inputs;
  }

  bool is_image(const FieldSpec& field) const {
    return is_image_of_bytes(field) || (field.encoded && is_usual_image(field.name));
  }

  static bool is_ragged(const FieldSpec& field) { return !field.encoded && !field.shape; }

  void require_numbers(const FieldSpec& field) const {
    if (!field.encoded && field.shape) return;
    refuse(fmt::format(
               "data.inputs has the field {}, which is {}", field.name,
               field.encoded ? "a text or a file in itself" : "of another length in each record"),
           field.encoded ? "fields of numbers with one shape, an image alone, or the stage "
                           "decode_record"
                         : "fields of numbers with one shape, or this one alone and the stage "
                           "pad");
  }

  // One field keeps its shape. Several become one row of numbers.
  std::optional<std::vector<int64_t>> shape_of(const std::vector<std::string>& names) const {
    if (names.size() == 1 && !at("", names[0]).shape->empty()) return at("", names[0]).shape;
    int64_t numbers = 0;
    for (const std::string& name : names) {
      int64_t elements = 1;
      for (const int64_t size : *at("", name).shape) elements *= size;
      numbers += elements;
    }
    return std::vector<int64_t>{numbers};
  }

  const FieldSpec* find(std::string_view name) const {
    const auto found = std::ranges::find(fields_, name, &FieldSpec::name);
    return found == fields_.end() ? nullptr : &*found;
  }

  const FieldSpec& at(std::string_view key, const std::string& name) const {
    if (const FieldSpec* field = find(name)) return *field;
    std::vector<std::string_view> names;
    for (const FieldSpec& field : fields_) names.push_back(field.name);
    const std::string near = nearest_word(name, names.data(), names.size());
    refuse(fmt::format("{} names the field \"{}\", which the records do not have", key, name),
           near.empty() ? list() : near);
  }

  std::string list() const {
    std::vector<std::string_view> names;
    for (const FieldSpec& field : fields_) names.push_back(field.name);
    return fmt::format("one of the fields {}", fmt::join(names, ", "));
  }

  [[noreturn]] static void refuse(const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, "data", what, remedy);
  }

  const std::vector<FieldSpec>& fields_;
};

}  // namespace

FieldChoice choose_fields(const std::vector<FieldSpec>& fields, const FieldWishes& wishes) {
  return FieldChooser(fields).choose(wishes);
}

std::optional<std::vector<int64_t>> decoded_shape(const Stages& stages) {
  const Stage* const decode = find_stage(stages, "decode_record");
  if (!decode) return std::nullopt;
  const std::vector<double>& sizes = decode->numbers("shape");
  return std::vector<int64_t>(sizes.begin(), sizes.end());
}

std::vector<std::string> names_of_inputs(const std::string& text) {
  std::vector<std::string> names;
  // Names may have spaces inside, such as those of columns.
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    size_t first = begin, last = end;
    while (first < last && text[first] == ' ') ++first;
    while (last > first && text[last - 1] == ' ') --last;
    const std::string name = text.substr(first, last - first);
    if (std::ranges::find(names, name) != names.end())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("data.inputs has the field {} twice", name), "each field once");
    if (!name.empty()) names.push_back(name);
    begin = end + 1;
  }
  return names;
}

std::vector<std::string> names_of_choice(const FieldChoice& choice) {
  if (choice.decoded) return *choice.decoded;
  std::vector<std::string> names = choice.inputs;
  for (const std::string& name : {choice.image, choice.tokens, choice.target})
    if (!name.empty()) names.push_back(name);
  return names;
}

std::vector<std::string> usual_targets() { return {std::begin(kTargets), std::end(kTargets)}; }
bool is_usual_target(std::string_view name) {
  return std::ranges::find(kTargets, name) != std::end(kTargets);
}
bool is_usual_image(std::string_view name) {
  return std::ranges::find(kImages, name) != std::end(kImages);
}

bool target_has_length(const std::vector<FieldSpec>& fields, const FieldChoice& choice) {
  if (choice.decoded) return false;
  return choice.target.empty() || std::ranges::any_of(fields, [&](const FieldSpec& field) {
           return field.name == choice.target && !field.shape;
         });
}

SampleForm first_form(const FieldChoice& fields, const Stages& stages) {
  if (fields.decoded) return SampleForm::record;
  if (fields.image.empty()) return SampleForm::tensors;
  const bool begins_with_record = !stages.empty() && stages[0].form->takes == SampleForm::record;
  return fields.shape && !begins_with_record ? SampleForm::image : SampleForm::record;
}

}  // namespace trireme::data
