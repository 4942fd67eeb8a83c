#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/base/hash.h>
#include <trireme/data/block_share.h>
#include <trireme/data/input_memory.h>
#include <trireme/data/kinds/class_counter.h>
#include <trireme/data/kinds/idx_set.h>
#include <trireme/data/kinds/record_set.h>
#include <trireme/data/pipeline/numbers.h>
#include <trireme/data/pipeline/sample_shape.h>
#include <trireme/data/service/addresses.h>
#include <trireme/records/open.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <utility>

namespace trireme::data {
namespace {

// Formats that are for `trireme data` alone, or for a kind with keys of its own.
constexpr std::string_view kHidden[] = {"lines", "idx", "text"};
// Keys of all kinds of records, and those that set an option of a format.
constexpr std::string_view kCommonKeys[] = {
    "data.test_path",   "data.stages",          "data.test_stages",   "data.inputs",
    "data.target",      "data.on_bad_record",   "data.bad_records",   "data.cache",
    "data.cache_bytes", "data.cache_dir",       "data.classes",       "data.split_seed",
    "data.service",     "data.service_timeout", "data.service_bytes", "data.service_threads",
    "data.max_ratio"};
constexpr std::pair<std::string_view, std::string_view> kOptionKeys[] = {
    {"delimiter", "data.delimiter"},   {"header", "data.header"},
    {"skip_lines", "data.skip_lines"}, {"comment", "data.comment"},
    {"dtype", "data.token_type"},      {"block", "data.block"},
    {"tokens", "data.tokens"},         {"separator", "data.separator"}};

// Keys of formats whose files may be on a server.
constexpr std::string_view kDownloadKeys[] = {"data.download_dir", "data.download_bytes",
                                              "data.download_timeout", "data.download_tries"};

bool has_option(const records::Format& format, std::string_view option) {
  return std::ranges::find(format.options, option) != format.options.end();
}

records::OpenOptions open_options(const DataOptions& options, const std::string& path) {
  const records::Format& format = records::find_format(options.name);
  records::OpenOptions open{.format = options.name, .path = path};
  open.keeps_damaged = skips_bad_records(options);
  open.remedy_of_damage = "data.on_bad_record=skip";
  open.max_ratio = options.max_ratio;
  open.memory_bytes = memory_of_block(options.memory_bytes);
  open.remedy_of_memory = "a larger data.memory_bytes, of which a file or record may take half";
  open.blocks = blocks_of_process(memory_of_kept_blocks(
      options.memory_bytes, keeps_in_memory(options) ? most_in_memory(options) : 0));
  open.option_names.emplace("max_ratio", "data.max_ratio");
  open.download = {.folder = options.download_dir,
                   .bytes = options.download_bytes,
                   .timeout = options.download_timeout,
                   .tries = options.download_tries};
  for (const auto& [option, key] : kOptionKeys) open.option_names.emplace(option, key);
  if (has_option(format, "delimiter")) open.delimiter = options.delimiter;
  if (has_option(format, "header")) open.header = options.header;
  if (has_option(format, "skip_lines")) open.skip_lines = options.skip_lines;
  if (has_option(format, "comment")) open.comment = options.comment;
  if (has_option(format, "dtype")) open.dtype = options.token_type;
  if (has_option(format, "block")) open.block = block_of(options);
  if (has_option(format, "tokens")) open.tokens = options.tokens;
  if (has_option(format, "separator") && options.separator >= 0)
    open.separator = options.separator;
  return open;
}

FieldWishes wishes_of(const DataOptions& options) {
  const auto [train_stages, test_stages] = stages_of(options);
  return {options.inputs, options.target,
          find_stage(train_stages, "pad") || find_stage(test_stages, "pad"),
          decoded_shape(train_stages)};
}

// Opens a part of files. If damaged records are skipped, they are those, too, that lack a field
// which most records have and samples need: without data.inputs, all numbers.
SharedReader open_needed(const DataOptions& options, records::OpenOptions open) {
  if (open.keeps_damaged)
    open.needed = [&](const std::vector<records::FieldSpec>& all) {
      try {
        return names_of_choice(choose_fields(all, wishes_of(options)));
      } catch (const Error& error) {
        const auto [what, remedy] = parts_of(error);
        throw Error(error.code(), "data",
                    fmt::format("{}: {}", records::shown_path(open.path), what), remedy);
      }
    };
  return records::open_records(open);
}

// The fields that a sample may have. No sample has a text.
std::vector<std::string> names_of_possible_parts(const std::vector<records::FieldSpec>& all) {
  std::vector<std::string> names;
  for (const records::FieldSpec& field : all)
    if (!field.encoded || is_usual_image(field.name) || is_usual_target(field.name))
      names.push_back(field.name);
  return names;
}

// The same for files whose records have fields beside those of other files.
auto open_kept(const DataOptions& options) {
  return [&options](records::OpenOptions open) {
    if (open.keeps_damaged)
      open.needed = [&](const std::vector<records::FieldSpec>& all) {
        std::vector<std::string> names = names_of_inputs(options.inputs);
        if (wishes_of(options).decoded) return names;
        if (names.empty()) return names_of_possible_parts(all);
        const std::vector<std::string> targets =
            options.target.empty() ? usual_targets() : std::vector{options.target};
        names.insert(names.end(), targets.begin(), targets.end());
        return names;
      };
    return records::open_records(open);
  };
}

// The list of numbers whose length the stages need, if the index has it only when it is asked for
// it; otherwise empty.
std::string list_to_measure(const DataOptions& options, const records::Reader& reader) {
  if (!has_option(records::find_format(options.name), "length_of")) return {};
  const auto [train_stages, test_stages] = stages_of(options);
  const auto has = [&](std::string_view name) {
    return find_stage(train_stages, name) || find_stage(test_stages, name);
  };
  if (!has("pack") && !has("pad") && !has("bucket")) return {};
  try {
    const FieldChoice fields = choose_fields(reader.fields(), wishes_of(options));
    if (knows_lengths(reader, fields)) return {};
    if (!fields.tokens.empty()) return fields.tokens;
    const bool is_list = fields.image.empty() && fields.inputs.size() == 1 && !fields.shape;
    return has("bucket") && is_list ? fields.inputs[0] : std::string();
  } catch (const Error&) {
    return {};  // The caller makes the same choice, and says more of it.
  }
}

// Opens the columns that samples need alone, if the format can leave out the others: they are not
// read, and may have values that no field can have.
std::shared_ptr<const records::Reader> open_columns(const DataOptions& options,
                                                    records::OpenOptions open) {
  if (!records::find_format(options.name).reads_columns) {
    const SharedReader reader = open_needed(options, open);
    open.length_of = list_to_measure(options, *reader);
    return open.length_of.empty() ? reader : open_needed(options, open);
  }
  const bool has_target = !options.target.empty();
  if (!options.inputs.empty() && (has_target || wishes_of(options).decoded)) {
    open.columns = names_of_inputs(options.inputs);
    if (has_target && std::ranges::find(open.columns, options.target) == open.columns.end())
      open.columns.push_back(options.target);
  }
  open.choose = [&](const std::vector<records::FieldSpec>& all) -> records::ColumnChoice {
    const FieldChoice fields = choose_fields(all, wishes_of(options));
    if (fields.target.empty() && fields.tokens.empty()) return {open.columns, {}};
    records::ColumnChoice choice{names_of_choice(fields), {}};
    for (const records::FieldSpec& field : all)
      if (field.name == fields.target && is_whole(field.dtype) && field.shape &&
          field.shape->empty())
        choice.label = field.name;
    return choice;
  };
  return records::open_records(open);
}

std::vector<PartFiles> part_files_of_idx(const DataOptions& options) {
  const IdxFiles files = find_idx_files(options);
  std::vector<PartFiles> parts;
  const auto add = [&](const char* part, const auto& images, const auto& labels) {
    parts.push_back({part, open_options(options, images.string())});
    parts.back().open.labels = labels.string();
  };
  add("train", files.images, files.labels);
  if (!files.test_images.empty()) add("test", files.test_images, files.test_labels);
  return parts;
}

// The parts' files, before anything is checked.
std::vector<PartFiles> part_files(const DataOptions& options) {
  if (options.name == kIdx) return part_files_of_idx(options);
  std::vector<PartFiles> parts{{"train", open_options(options, options.path)}};
  const bool is_cifar = options.name == "cifar";
  if (is_cifar) parts[0].open.part = "train";
  if (!options.test_path.empty()) {
    parts.push_back({"test", open_options(options, options.test_path)});
  } else if (is_cifar && !records::is_address(options.path) &&
             std::filesystem::is_directory(options.path)) {
    // Files of a usual name lie beside those of the training part.
    parts.push_back({"test", parts[0].open, true});
    parts[1].open.part = "test";
  }
  return parts;
}

// Null for a test part that is not there. `open` opens the others.
template <typename Open>
SharedReader open_part(const PartFiles& part, Open open) {
  try {
    return open(part.open);
  } catch (const Error& error) {
    if (part.may_be_missing && error.code() == ErrorCode::not_found) return nullptr;
    throw;
  }
}

// The records that are held out go to the test part.
void hold_out_records(const DataOptions& options, bool from_end, int64_t records, Dataset& data) {
  if (options.test_fraction <= 0) return;
  data.split = from_end ? plan::split_at_end(records, options.test_fraction)
                        : plan::plan_split(records, options.test_fraction,
                                           static_cast<uint64_t>(options.split_seed));
}

// The size along which samples differ: that of the longest one.
std::vector<int64_t> longest_shape(const FieldChoice& fields, const SamplePlan& plan,
                                   std::vector<int64_t> shape, const Stages& stages) {
  if (plan.packing) return {plan.packing->options().tokens};
  if (fields.shape || !plan.has_lengths || shape.size() != 1) return shape;
  int64_t longest = fields.tokens.empty() ? plan.longest : std::max<int64_t>(1, plan.longest - 1);
  if (const Stage* const pad = find_stage(stages, "pad")) {
    const auto multiple = static_cast<int64_t>(pad->number("multiple"));
    longest = (longest + multiple - 1) / multiple * multiple;
  }
  return {longest};
}

void refuse_doubtful_field(const std::string& name, const std::string& why, const char* remedy) {
  throw Error(ErrorCode::corrupt, "data",
              fmt::format("most records have the field '{}', but {}", name, why),
              fmt::format("{}, or data.on_bad_record=skip", remedy));
}

// Fields that the samples need by their names, which are those of data.inputs and data.target, or
// usual ones.
void refuse_doubtful_names(const DataOptions& options, const records::Reader& train) {
  if (skips_bad_records(options)) return;
  const std::vector<std::string> inputs = names_of_inputs(options.inputs);
  for (const auto& [name, why] : train.doubtful_fields()) {
    const bool is_input =
        inputs.empty() ? is_usual_image(name) : std::ranges::find(inputs, name) != inputs.end();
    if (is_input || (options.target.empty() ? is_usual_target(name) : name == options.target))
      refuse_doubtful_field(name, why, "a value there");
  }
}

// Without data.inputs all numbers are inputs. A model would be trained without these, in silence.
void refuse_doubtful_inputs(const DataOptions& options, const records::Reader& train,
                            const FieldChoice& fields) {
  if (skips_bad_records(options) || !options.inputs.empty() || !fields.image.empty() ||
      !fields.tokens.empty())
    return;
  for (const auto& [name, why] : train.doubtful_fields())
    refuse_doubtful_field(name, why,
                          "a value there, or data.inputs with the other fields, to leave it out");
}

std::string describe_field(const records::FieldSpec& field, bool is_target) {
  std::string text = field.name;
  if (field.encoded) text += " (encoded)";
  if (is_target) text += is_whole(field.dtype) ? " (classes)" : " (values)";
  if (!field.encoded && field.shape && !field.shape->empty())
    text += fmt::format(" [{}]", fmt::join(*field.shape, ", "));
  return text;
}

// The fields of a part that its samples need; nothing if it does not have them.
std::vector<std::string> describe_needed(const records::Reader& reader,
                                         const FieldWishes& wishes) {
  std::vector<std::string> described;
  try {
    const FieldChoice fields = choose_fields(reader.fields(), wishes);
    for (const std::string& name : names_of_choice(fields))
      described.push_back(
          describe_field(*std::ranges::find(reader.fields(), name, &records::FieldSpec::name),
                         name == fields.target));
  } catch (const Error&) {
    return {};
  }
  return described;
}

// Types may differ, because those of text files are found by their values; but classes are whole,
// and values are not. So may fields that no sample needs.
void require_same_fields(const records::Reader& train, const records::Reader& test,
                         const FieldChoice& fields, const DataOptions& options) {
  const FieldWishes wishes = wishes_of(options);
  // Files on a server have no file of names beside them.
  const bool may_lack_names =
      (records::is_address(options.path) && train.class_names().empty()) ||
      (records::is_address(options.test_path) && test.class_names().empty());
  if (describe_needed(train, wishes) == describe_needed(test, wishes) &&
      (may_lack_names || train.class_names() == test.class_names()))
    return;
  const auto describe_all = [&](const records::Reader& reader) {
    std::vector<std::string> all;
    for (const records::FieldSpec& field : reader.fields())
      all.push_back(describe_field(field, field.name == fields.target));
    return fmt::format("{}", fmt::join(all, ", "));
  };
  throw Error(
      ErrorCode::invalid_argument, "data",
      fmt::format("data.test_path, {}, has records of {} and {} named classes, and "
                  "data.path has {} and {} named classes",
                  records::shown_path(options.test_path), describe_all(test),
                  test.class_names().size(), describe_all(train), train.class_names().size()),
      "a test part of the same data set");
}

// A model takes samples of one form.
void require_same_decoding(const Stages& train, const Stages& test) {
  const auto shape = decoded_shape(train), of_test = decoded_shape(test);
  if (shape == of_test) return;
  const auto described = [](const auto& sizes) {
    return sizes ? fmt::format("decode_record with the shape {}", fmt::join(*sizes, ":"))
                 : std::string("no decode_record");
  };
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("data.test_stages have {}, and data.stages {}", described(of_test),
                          described(shape)),
              "decode_record with one shape in both");
}

// Targets that are values and not classes. Mixed samples have probabilities of classes. The
// targets that a function of the user's own makes are not known.
bool has_values(const records::Reader& reader, const FieldChoice& fields, const Stages& stages) {
  if (fields.decoded) return false;
  for (const records::FieldSpec& field : reader.fields())
    if (field.name == fields.target && is_whole(field.dtype)) return false;
  for (const Stage& stage : stages)
    if (stage.form->kind == StageKind::mix) return false;
  return fields.tokens.empty();
}

}  // namespace

std::vector<DataKind> record_kinds() {
  std::vector<DataKind> kinds;
  for (const records::Format& format : records::formats()) {
    if (std::ranges::find(kHidden, format.name) != std::end(kHidden)) continue;
    DataKind kind{.name = std::string(format.name),
                  .about = format.about,
                  .path = format.path,
                  .check = check_record_set,
                  .read = read_record_set};
    add_record_keys(kind);
    for (const auto& [option, key] : kOptionKeys)
      if (has_option(format, option)) kind.keys.push_back(key);
    kind.has_tokens = format.name == "tokens";
    kind.has_blocks = true;
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

void add_record_keys(DataKind& kind) {
  for (const std::string_view key : kCommonKeys) kind.keys.push_back(key);
  if (records::find_format(kind.name).not_remote.empty())
    for (const std::string_view key : kDownloadKeys) kind.keys.push_back(key);
}

std::vector<PartFiles> files_of_parts(const DataOptions& options) {
  const auto& formats = records::formats();
  if (std::ranges::find(formats, options.name, &records::Format::name) == formats.end())
    throw Error(ErrorCode::unsupported, "data",
                fmt::format("data.name is {}, whose files have no index of records", options.name),
                "a configuration with files of records, such as webdataset");
  check_record_set(options);
  return part_files(options);
}

int64_t block_of(const DataOptions& options) {
  const Stages stages = parse_stages("data.stages", options.stages);
  const bool takes_documents = options.separator >= 0 || find_stage(stages, "pack") ||
                               find_stage(stages, "pad") || find_stage(stages, "bucket");
  return options.name == "tokens" && takes_documents ? 0 : options.block;
}

bool needs_records(const DataOptions& options) {
  const bool is_remote = std::ranges::any_of(
      paths_of(options), [](const std::string* path) { return records::is_address(*path); });
  return is_remote || !options.stages.empty() || !options.test_stages.empty() ||
         !options.inputs.empty() || !options.target.empty() || skips_bad_records(options) ||
         !service_addresses(options.service).empty();
}

bool keeps_in_memory(const DataOptions& options) {
  for (const std::string& text : {options.stages, options.test_stages})
    for (const Stage& stage : parse_stages("data.stages", text))
      if (stage.form->name == "cache" && stage.word("place") != "disk") return true;
  return false;
}

int64_t most_in_memory(const DataOptions& options) {
  if (options.cache_bytes >= 0) return options.cache_bytes;
  return memory_of_caches(input_memory(options.memory_bytes));
}

StagesOfParts stages_of(const DataOptions& options) {
  StagesOfParts stages{parse_stages("data.stages", options.stages), {}};
  stages.test = options.test_stages.empty()
                    ? without_random(stages.train)
                    : parse_stages("data.test_stages", options.test_stages);
  return stages;
}

void refuse_mixed_tests(const Stages& stages) {
  for (const Stage& stage : stages)
    if (stage.form->kind == StageKind::mix)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("data.test_stages: {} mixes samples, and an evaluation judges each "
                              "one",
                              stage.form->name),
                  "data.test_stages without it");
}

void refuse_mixed_tokens(const Stages& stages) {
  for (const Stage& stage : stages)
    if (stage.form->kind == StageKind::mix)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("data.stages: {} mixes numbers, and the samples are tokens",
                              stage.form->name),
                  "data.stages without it");
}

void check_cache(const DataOptions& options) {
  if (options.cache != "auto") return;
  for (const auto& [key, text] :
       {std::pair{"data.stages", options.stages}, {"data.test_stages", options.test_stages}})
    if (find_stage(parse_stages(key, text), "cache"))
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("data.cache is auto, and {} has a stage cache", key),
                  "one of the two");
}

void check_record_set(const DataOptions& options) {
  if (options.name == kIdx)
    check_idx_files(options);
  else if (options.path.empty())
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format("data.name is {}, but data.path does not name its files", options.name),
        fmt::format("data.path: {}", records::find_format(options.name).path));
  parse_stages("data.stages", options.stages);
  parse_stages("data.test_stages", options.test_stages);
  check_cache(options);
  service_addresses(options.service);
  if (options.memory_bytes >= 0 && options.cache_bytes > options.memory_bytes &&
      (keeps_in_memory(options) || options.cache == "auto"))
    throw Error(
        ErrorCode::invalid_argument, "data",
        fmt::format("data.cache_bytes is {}, more than data.memory_bytes, {}, which is for "
                    "the cache and the batches",
                    options.cache_bytes, options.memory_bytes),
        "a smaller data.cache_bytes, or cache(disk)");
}

SharedReader open_train_part(const DataOptions& options) {
  return open_part(part_files(options)[0], open_kept(options));
}

SharedReader open_test_part(const DataOptions& options) {
  const std::vector<PartFiles> files = part_files(options);
  return files.size() > 1 ? open_part(files[1], open_kept(options)) : nullptr;
}

Dataset read_record_set(const DataOptions& options) {
  check_record_set(options);
  const std::vector<PartFiles> files = part_files(options);
  const auto open = [&](const records::OpenOptions& of_part) {
    return open_columns(options, of_part);
  };
  DataOptions found = options;  // Keys of a kind's own may have named the files.
  found.path = files[0].open.path;
  if (files.size() > 1 && !files[1].may_be_missing) found.test_path = files[1].open.path;
  return read_parts(found, open_part(files[0], open),
                    files.size() > 1 ? open_part(files[1], open) : nullptr);
}

Dataset read_parts(const DataOptions& options, SharedReader train_part, SharedReader test_part) {
  RecordParts parts{
      .options = options, .train = std::move(train_part), .test = std::move(test_part)};
  const records::Reader& train = *parts.train;
  if (train.size() == 0)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("there is no record in {}", records::shown_path(options.path)),
                "files with records");
  parts.image_bytes = memory_of_image(options.memory_bytes);
  const auto [train_stages, test_stages] = stages_of(options);
  parts.train_stages = of_samples(train_stages);
  parts.test_stages = of_samples(test_stages);
  parts.wishes = wishes_of(options);
  const FieldWishes& wishes = parts.wishes;
  require_same_decoding(train_stages, test_stages);
  refuse_doubtful_names(options, train);
  const FieldChoice fields = choose_fields(train.fields(), wishes);
  refuse_doubtful_inputs(options, train, fields);
  check_forms("data.stages", train_stages, first_form(fields, parts.train_stages));
  check_forms("data.test_stages", test_stages, first_form(fields, parts.test_stages));
  refuse_mixed_tests(parts.test_stages);
  if (!fields.tokens.empty()) refuse_mixed_tokens(parts.train_stages);

  Dataset data;
  data.content = train.content();
  if (const std::string numbers = stages_of_numbers(train_stages); !numbers.empty())
    data.content = sha256_hex(data.content + "\n" + numbers);
  if (parts.test) {
    require_same_fields(train, *parts.test, fields, options);
    data.test_content = parts.test->content();
  } else {
    hold_out_records(options, !fields.tokens.empty(), train.size(), data);
  }
  parts.train_plan = plan_samples(parts.train, data.split.train, train_stages, fields);
  const auto& test = parts.test ? parts.test : parts.train;
  const bool has_test = parts.test || !data.split.test.empty();
  if (has_test) parts.test_plan = plan_samples(test, data.split.test, test_stages, fields);
  parts.test = test;
  std::optional<CountedPart> test_numbers;
  if (has_test)
    test_numbers.emplace(CountedPart{*test, parts.test_plan.subset, parts.test_stages});
  parts.classes = count_classes(
      options, fields, {train, parts.train_plan.subset, parts.train_stages}, test_numbers);
  data.train_samples = parts.train_plan.samples;
  data.test_samples = parts.test_plan.samples;
  data.train_blocks = parts.train_plan.blocks;
  data.by_length = parts.train_plan.by_length;
  data.uneven = parts.train_plan.uneven;
  data.uneven_test = parts.test_plan.uneven;
  if (const auto& packing = parts.train_plan.packing) {
    data.about = "packs: " + packing->describe();
    data.facts["packing"] = packing->to_json();
  }
  data.input = {longest_shape(fields, parts.train_plan,
                              shape_of_samples(train, fields, parts.train_stages,
                                               skips_bad_records(options), parts.image_bytes),
                              parts.train_stages),
                parts.classes};
  data.input.type = type_of_samples(parts.train_stages);
  data.input.is_packed = parts.train_plan.packing != nullptr;
  data.input.is_ragged =
      wishes.is_padded && (!fields.shape || fields.decoded) && fields.image.empty();
  data.has_tokens = !fields.tokens.empty();
  data.class_names = train.class_names();
  data.has_values = has_values(train, fields, parts.train_stages);
  data.has_target = !fields.target.empty() || !fields.tokens.empty() || fields.decoded;
  parts.tokens = fields.tokens;
  parts.target_has_length = target_has_length(train.fields(), fields);
  data.samples = std::move(parts);
  require_training_samples(data);
  return data;
}

}  // namespace trireme::data
