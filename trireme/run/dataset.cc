#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/run/dataset.h>
#include <trireme/run/places.h>
#include <cmath>
#include <numeric>
#include <span>

namespace trireme {
namespace fs = std::filesystem;

namespace {

template <typename T>
void add(checkpoint::Digest& digest, const std::vector<T>& values) {
  digest.update(std::as_bytes(std::span(values)));
}
void add(checkpoint::Digest& digest, const std::string& text) {
  digest.update(std::as_bytes(std::span(text)));
}

std::string digest_of(const data::ImageTable& table) {
  checkpoint::Digest digest;
  add(digest, fmt::format("{} images of {} x {} x {}, up to {}\n", table.count, table.channels,
                          table.height, table.width, table.scale));
  add(digest, table.pixels);
  add(digest, table.labels);
  return digest.text();
}

std::string digest_of(const data::TextTokens& text) {
  checkpoint::Digest digest;
  add(digest, fmt::format("{} tokens of {}\n", text.tokens.size(), text.vocabulary));
  for (const std::string& character : text.characters) add(digest, character + "\n");
  add(digest, text.tokens);
  return digest.text();
}

void read_idx_tables(const Config& config, std::optional<int64_t> classes, Dataset& data) {
  const IdxFiles files = find_idx_files(config.data);
  data.train = data::read_idx(files.images, files.labels, classes);
  if (!files.test_images.empty())
    data.test = data::read_idx(files.test_images, files.test_labels,
                               classes ? classes : std::optional(data.train.classes));
  const auto size_of = [](const data::ImageTable& table) {
    return fmt::format("{}x{}x{}", table.channels, table.height, table.width);
  };
  if (data.test.count > 0 && size_of(data.test) != size_of(data.train))
    throw Error(ErrorCode::invalid_argument, "cli",
                fmt::format("the images in {} are {}, those in {} are {}", files.images.string(),
                            size_of(data.train), files.test_images.string(), size_of(data.test)),
                "a test part of the same data set");
}

void read_images(const Config& config, Dataset& data) {
  const std::optional<int64_t> classes =
      config.data.classes > 0 ? std::optional(config.data.classes) : std::nullopt;
  if (config.data.name == "idx") {
    read_idx_tables(config, classes, data);
  } else if (config.data.name != "digits") {
    throw Error(
        ErrorCode::invalid_argument, "cli",
        fmt::format("data.name is \"{}\", and no data set has this name", config.data.name),
        "digits, idx or text");
  } else {
    fs::path file = config.data.path.empty() ? shipped_digits() : fs::path(config.data.path);
    std::error_code ignored;  // The reader of the file says what is wrong with it.
    if (fs::is_directory(file, ignored)) file /= "digits.csv.gz";
    data.train = data::read_digits(file, classes);
  }
  data.content = digest_of(data.train);
  if (data.test.count > 0) data.test_content = digest_of(data.test);
  if (data.test.count == 0 && config.data.test_fraction > 0) {
    data.split = plan::plan_split(data.train.count, config.data.test_fraction,
                                  static_cast<uint64_t>(config.data.split_seed));
    data.test = data::select(data.train, data.split.test);
    data.train = data::select(data.train, data.split.train);
  }
  data.train_samples = data.train.count;
  data.test_samples = data.test.count;
  data.input = {{data.train.channels, data.train.height, data.train.width}, data.train.classes};
}

// Holds out the end of the text, because neighbouring blocks are not independent samples.
void read_text(const Config& config, Dataset& data) {
  const auto unit =
      config.data.tokens == "bytes" ? data::TextUnit::bytes : data::TextUnit::characters;
  data.text = std::make_shared<data::TextTokens>(
      data::read_text(config.data.path, config.data.block, unit));
  data.content = digest_of(*data.text);
  const int64_t samples = data.text->samples();
  data.test_samples = std::llround(static_cast<double>(samples) * config.data.test_fraction);
  data.train_samples = samples - data.test_samples;
  data.split.train.resize(static_cast<size_t>(data.train_samples));
  data.split.test.resize(static_cast<size_t>(data.test_samples));
  std::iota(data.split.train.begin(), data.split.train.end(), 0);
  std::iota(data.split.test.begin(), data.split.test.end(), data.train_samples);
  data.input = {{config.data.block}, data.text->vocabulary};
}

}  // namespace

Dataset read_data(const Config& config) {
  Dataset data;
  if (config.data.name == "text") {
    read_text(config, data);
  } else {
    read_images(config, data);
  }
  if (data.train_samples == 0)
    throw Error(ErrorCode::invalid_argument, "cli", "no training samples are left",
                "a smaller data.test_fraction");
  return data;
}

void identify_data(Json& keys, const Config& config, const Dataset& data) {
  keys["data.content"] = data.content;
  if (!data.test_content.empty()) keys["data.test_content"] = data.test_content;
  const bool holds_out = !data.split.test.empty();
  if (!holds_out) keys.erase("data.test_fraction");
  if (!holds_out || config.data.name == "text") keys.erase("data.split_seed");
}

plan::DataPlan data_plan_of(const Config& config, const Dataset& data) {
  return plan::DataPlan({.samples = data.train_samples,
                         .batch = config.trainer.batch,
                         .seed = config.trainer.seed,
                         .shuffle = config.trainer.shuffle,
                         .drop_last = config.trainer.drop_last,
                         .virtual_shards = config.trainer.virtual_shards});
}

plan::DType reduced_dtype(const Config& config) {
  const plan::DType dtype = config.trainer.dtype;
  return plan::bytes_of(dtype) == 2 ? plan::DType::float32 : dtype;
}

models::ModelOptions model_for(const Config& config, const Dataset& data) {
  models::ModelOptions model = config.model;
  if (models::family_of(model) != models::Family::gpt || !data.text) return model;
  if (model.vocabulary < 0) model.vocabulary = data.input.classes;
  if (model.context < 0) model.context = data.input.shape[0];
  return model;
}

}  // namespace trireme
