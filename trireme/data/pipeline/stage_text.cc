// From the text of stages to their values, and back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/data/pipeline/stage.h>
#include <algorithm>
#include <charconv>
#include <utility>

namespace trireme::data {
namespace {

// The usual means and deviations of colours, of the training images of these data sets.
struct KnownColours {
  std::string_view name, mean, deviation;
};
constexpr KnownColours kKnownColours[] = {
    {"imagenet", "0.485:0.456:0.406", "0.229:0.224:0.225"},
    {"cifar10", "0.4914:0.4822:0.4465", "0.247:0.2435:0.2616"}};

// Words of other libraries' pipelines, for which a configuration has another place.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"batch", "data.batch, the samples of a step"},
    {"shuffle", "data.shuffle, the order of an epoch"},
    {"prefetch", "data.prefetch and data.threads"},
    {"mix", "data.name=mixture, with the data sets and their weights in data.sources"},
    {"interleave", "data.name=mixture, with equal weights in data.sources and data.shuffle=none"},
    {"zip", "data.name=zip, with the data sets in data.sources"}};

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Parameters that are whole numbers.
constexpr std::string_view kWhole[] = {"size",   "padding", "fill",  "channels", "n",
                                       "tokens", "window",  "batch", "multiple", "shape"};

std::string joined_by_or(const std::vector<std::string_view>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 < words.size() ? ", " : " or ", words[i]);
  return text;
}

class StageParser {
 public:
  explicit StageParser(std::string_view key) : key_(key) {}

  Stage parse(std::string_view text) const {
    const size_t open = text.find('(');
    const std::string_view name = trimmed(text.substr(0, open));
    Stage stage{.form = form_of(name)};
    std::string_view inside;
    if (open != std::string_view::npos) {
      if (text.back() != ')')
        refuse(fmt::format("the stage \"{}\" has no bracket at its end", text),
               fmt::format("{})", text));
      inside = text.substr(open + 1, text.size() - open - 2);
      if (inside.find_first_of("()") != std::string_view::npos)
        refuse(fmt::format("the stage \"{}\" has a bracket in its brackets", text),
               "| between two stages");
    }
    for (const auto& [parameter, value] : given(*stage.form, inside))
      stage.values.push_back(value_of(*stage.form, *parameter, value));
    check_numbers(stage);
    check_frame(stage);
    return stage;
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const {
    throw Error(ErrorCode::invalid_argument, "data", fmt::format("{}: {}", key_, what), remedy);
  }

 private:
  const StageForm* form_of(std::string_view name) const {
    std::vector<std::string_view> names;
    for (const StageForm& form : stage_forms()) {
      if (form.name == name) return &form;
      names.push_back(form.name);
    }
    if (name.empty())
      refuse("there is a stage without a name",
             "stages with | between them, such as decode | normalise");
    for (const auto& [word, place] : kElsewhere)
      if (word == name)
        refuse(fmt::format("{} is no stage of a sample", name), std::string(place));
    const std::string near = nearest_word(name, names.data(), names.size());
    refuse(fmt::format("there is no stage \"{}\"", name),
           near.empty() ? fmt::format("{}", fmt::join(names, ", ")) : near);
  }

  // Every parameter with its text, in the order of the form.
  std::vector<std::pair<const ParameterForm*, std::string>> given(const StageForm& form,
                                                                  std::string_view inside) const {
    std::vector<std::pair<const ParameterForm*, std::string>> values;
    for (const ParameterForm& parameter : form.parameters)
      values.emplace_back(&parameter, std::string());
    size_t place = 0;
    bool named = false;
    for (const std::string_view part : split(inside, ',')) {
      if (trimmed(inside).empty()) break;
      const size_t equals = part.find('=');
      if (equals == std::string_view::npos && named)
        refuse(fmt::format("{}: \"{}\" stands without a name behind a value with one", form.name,
                           part),
               fmt::format("{}=...", names_of(form)));
      size_t at = place++;
      if (equals != std::string_view::npos) {
        named = true;
        at = index_of(form, trimmed(part.substr(0, equals)));
      }
      if (at >= values.size())
        refuse(fmt::format("{} has the value \"{}\" too many", form.name, part),
               form.parameters.empty()
                   ? fmt::format("{} without brackets", form.name)
                   : fmt::format("at most {}: {}", values.size(), names_of(form)));
      const std::string_view text =
          equals == std::string_view::npos ? part : trimmed(part.substr(equals + 1));
      if (!values[at].second.empty())
        refuse(fmt::format("{}: {} is given twice", form.name, values[at].first->name),
               "one of the two");
      if (text.empty())
        refuse(fmt::format("{}: {} has no value", form.name, values[at].first->name),
               std::string(values[at].first->meaning));
      values[at].second = text;
    }
    name_colours(form, values);
    for (auto& [parameter, text] : values) {
      if (!text.empty()) continue;
      if (parameter->standard.empty())
        refuse(fmt::format("{} needs {}: {}", form.name, parameter->name, parameter->meaning),
               fmt::format("{}(...)", form.name));
      text = parameter->standard;
    }
    return values;
  }

  static std::string names_of(const StageForm& form) {
    std::vector<std::string_view> names;
    for (const ParameterForm& parameter : form.parameters) names.push_back(parameter.name);
    return fmt::format("{}", fmt::join(names, ", "));
  }

  size_t index_of(const StageForm& form, std::string_view name) const {
    for (size_t i = 0; i < form.parameters.size(); ++i)
      if (form.parameters[i].name == name) return i;
    refuse(
        fmt::format("{} has no parameter \"{}\"", form.name, name),
        form.parameters.empty() ? fmt::format("{} without brackets", form.name) : names_of(form));
  }

  // normalise(imagenet)
  template <typename Values>
  static void name_colours(const StageForm& form, Values& values) {
    if (form.name != "normalise") return;
    for (const auto& [name, mean, deviation] : kKnownColours) {
      if (values[0].second != name) continue;
      values[0].second = mean;
      if (values[1].second.empty()) values[1].second = deviation;
    }
  }

  StageValue value_of(const StageForm& form, const ParameterForm& parameter,
                      const std::string& text) const {
    StageValue value{.name = std::string(parameter.name), .text = text};
    const bool is_known = std::ranges::find(parameter.words, text) != parameter.words.end();
    if (parameter.is_word && !is_known && !parameter.words.empty())
      refuse(fmt::format("{}: {} is \"{}\"", form.name, parameter.name, text),
             joined_by_or(parameter.words));
    if (parameter.is_word || is_known) {
      value.word = text;
      return value;
    }
    for (const std::string_view part : split(text, ':')) {
      double number = 0;
      const auto [end, status] = std::from_chars(part.data(), part.data() + part.size(), number);
      if (status != std::errc() || end != part.data() + part.size())
        refuse(fmt::format("{}: {} is \"{}\", and \"{}\" is not a number", form.name,
                           parameter.name, text, part),
               std::string(parameter.meaning));
      if (!(number >= parameter.least && number <= parameter.most))
        refuse(fmt::format("{}: {} is {}, but must lie in {:g} to {:g}", form.name, parameter.name,
                           part, parameter.least, parameter.most),
               std::string(parameter.meaning));
      value.numbers.push_back(number);
    }
    if (value.numbers.size() > parameter.most_numbers)
      refuse(fmt::format("{}: {} is \"{}\", which are {} numbers", form.name, parameter.name, text,
                         value.numbers.size()),
             fmt::format("at most {}", parameter.most_numbers));
    return value;
  }

  // A range has its smaller end first. Sizes are whole.
  void check_numbers(const Stage& stage) const {
    for (const StageValue& value : stage.values) {
      if (stage.form->name == "colour_jitter") check_jitter(value);
      const bool is_range = value.name == "scale" || value.name == "ratio";
      if (is_range && (value.numbers.size() != 2 || value.numbers[0] > value.numbers[1]))
        refuse(fmt::format("{}: {} is \"{}\", but is the least and the largest value",
                           stage.form->name, value.name, value.text),
               "two numbers such as 0.5:1");
      const bool is_whole = std::ranges::find(kWhole, value.name) != std::end(kWhole);
      for (const double number : value.numbers)
        if (is_whole && number != static_cast<double>(static_cast<int64_t>(number)))
          refuse(fmt::format("{}: {} is \"{}\", but must be whole", stage.form->name, value.name,
                             value.text),
                 "a whole number");
      if (value.name == "channels" && value.numbers[0] == 2)
        refuse(fmt::format("{}: channels is 2", stage.form->name), "1 or 3");
    }
  }

  // One number x stands for a range around the value that changes nothing, and two are a range.
  void check_jitter(const StageValue& value) const {
    if (value.numbers.size() == 1 && value.numbers[0] < 0)
      refuse(fmt::format("colour_jitter: {} is {}, and one number must not be below 0", value.name,
                         value.text),
             "the least and the largest value, such as -0.1:0.1");
    if (value.numbers.size() == 2 && value.numbers[0] > value.numbers[1])
      refuse(fmt::format("colour_jitter: {} is \"{}\", but two numbers are the least and the "
                         "largest value",
                         value.name, value.text),
             fmt::format("{}:{}", value.numbers[1], value.numbers[0]));
  }

  void check_frame(const Stage& stage) const {
    if (stage.form->name != "random_crop") return;
    const std::vector<double>& padding = stage.numbers("padding");
    if (padding.size() == 3)
      refuse("random_crop: padding has 3 numbers",
             "one for all sides, horizontal:vertical, or left:top:right:bottom");
    const bool is_black =
        std::ranges::all_of(stage.numbers("fill"), [](double x) { return x == 0; });
    if (!is_black && stage.word("padding_mode") != "constant")
      refuse(fmt::format("random_crop has a fill, and padding_mode is {}, whose frame has the "
                         "pixels of the image",
                         stage.word("padding_mode")),
             "padding_mode=constant, or no fill");
  }

  std::string_view key_;
};

}  // namespace

const StageValue& Stage::at(std::string_view name) const {
  for (const StageValue& value : values)
    if (value.name == name) return value;
  throw Error(ErrorCode::internal, "data",
              fmt::format("the stage {} has no parameter {}", form->name, name));
}

std::string Stage::describe() const {
  std::vector<std::string> parts;
  bool in_order = true;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].text == form->parameters[i].standard) {
      in_order = false;
      continue;
    }
    parts.push_back(in_order ? values[i].text
                             : fmt::format("{}={}", values[i].name, values[i].text));
  }
  if (parts.empty()) return std::string(form->name);
  return fmt::format("{}({})", form->name, fmt::join(parts, ", "));
}

Stages parse_stages(std::string_view key, std::string_view text) {
  Stages stages;
  if (trimmed(text).empty()) return stages;
  const StageParser parser(key);
  for (const std::string_view part : split(text, '|')) stages.push_back(parser.parse(part));
  return stages;
}

std::string describe(const Stages& stages) {
  std::vector<std::string> texts;
  for (const Stage& stage : stages) texts.push_back(stage.describe());
  return fmt::format("{}", fmt::join(texts, " | "));
}

Json to_json(const Stages& stages) {
  Json list = Json::array();
  for (const Stage& stage : stages) {
    Json one{{"name", stage.form->name}};
    for (const StageValue& value : stage.values) {
      if (stage.form->parameters.empty()) continue;
      if (!value.word.empty())
        one[value.name] = value.word;
      else if (value.numbers.size() == 1)
        one[value.name] = value.numbers[0];
      else
        one[value.name] = value.numbers;
    }
    list.push_back(one);
  }
  return list;
}

std::string table_of_stages() {
  std::string table = "| stage | from | to | does |\n|---|---|---|---|\n";
  for (const StageForm& form : stage_forms()) {
    std::vector<std::string> parameters;
    std::string meanings;
    for (const ParameterForm& each : form.parameters) {
      parameters.push_back(each.standard.empty() ? std::string(each.name)
                                                 : fmt::format("{}={}", each.name, each.standard));
      meanings +=
          fmt::format("{}`{}`: {}", meanings.empty() ? " " : "; ", each.name, each.meaning);
    }
    const std::string brackets =
        parameters.empty() ? "" : fmt::format("({})", fmt::join(parameters, ", "));
    const bool is_order = form.kind == StageKind::order;
    table += fmt::format("| `{}{}`{} | {} | {} | {}{}{} |\n", form.name, brackets,
                         form.is_random ? ", random" : "",
                         is_order          ? "anything"
                         : form.keeps_form ? "an image or tensors"
                                           : to_string(form.takes),
                         is_order || form.keeps_form ? "the same" : to_string(form.gives),
                         form.meaning, meanings, meanings.empty() ? "" : ".");
  }
  return table;
}

bool crops_while_decoding(const Stage& stage, const Stage& next) {
  return stage.form->name == "decode" && next.form->name == "random_resized_crop";
}

const Stage* find_stage(const Stages& stages, std::string_view name) {
  const auto found =
      std::ranges::find_if(stages, [&](const Stage& stage) { return stage.form->name == name; });
  return found == stages.end() ? nullptr : &*found;
}

Stages of_samples(const Stages& stages) {
  Stages kept;
  for (const Stage& stage : stages)
    if (stage.form->kind != StageKind::order && stage.form->kind != StageKind::pack)
      kept.push_back(stage);
  return kept;
}

Stages without_cache(const Stages& stages) {
  Stages kept;
  bool changes_draws = false;
  for (const Stage& stage : stages) {
    changes_draws |= stage.form->name == "map";
    if (stage.form->name != "cache" || changes_draws) kept.push_back(stage);
  }
  return kept;
}

bool calls_function(const Stage& stage) {
  return std::ranges::find(stage.form->parameters, "function", &ParameterForm::name) !=
         stage.form->parameters.end();
}

std::string name_with_function(const Stage& stage) {
  const std::string name(stage.form->name);
  return calls_function(stage) ? fmt::format("{}({})", name, stage.word("function")) : name;
}

std::string text_to_agree(std::string_view key, const std::string& text) {
  return describe(without_cache(parse_stages(key, text)));
}

Stages without_random(const Stages& stages) {
  Stages kept;
  for (const Stage& stage : stages) {
    if (stage.form->kind == StageKind::order) continue;
    if (!stage.form->is_random) {
      kept.push_back(stage);
      continue;
    }
    for (const StageForm& form : stage_forms())
      if (form.name == stage.form->instead)
        kept.push_back({.form = &form, .values = {stage.values.front()}});
  }
  return kept;
}

}  // namespace trireme::data
