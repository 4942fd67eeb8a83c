#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/data/kinds/sample_plan.h>
#include <trireme/data/pipeline/numbers.h>
#include <algorithm>
#include <optional>
#include <utility>

namespace trireme::data {
namespace {

[[noreturn]] void refuse_stage(const std::string& what, const std::string& remedy) {
  throw Error(ErrorCode::invalid_argument, "data", "data.stages: " + what, remedy);
}

class SamplePlanner {
 public:
  SamplePlanner(SharedReader reader, const FieldChoice& fields, plan::Subset subset)
      : reader_(std::move(reader)), fields_(fields) {
    made_.subset = std::move(subset);
    made_.has_lengths = knows_lengths(*reader_, fields);
    made_.samples = documents();
  }

  SamplePlan run(const Stages& stages) {
    const Stage* const pack = find_stage(stages, "pack");
    if (!pack) made_.blocks = blocks_of_records();
    for (const Stage& stage : stages) {
      if (stage.form->name == "take") take(whole(stage, "n"));
      if (stage.form->name == "repeat") repeat(whole(stage, "n"));
      if (&stage == pack) this->pack(stage);
    }
    if (made_.has_lengths && !fields_.shape) compare_lengths(stages);
    if (find_stage(stages, "pad") && !fields_.tokens.empty()) pad_tokens(stages);
    if (const Stage* const bucket = find_stage(stages, "bucket")) this->bucket(*bucket);
    return std::move(made_);
  }

 private:
  static int64_t whole(const Stage& stage, std::string_view name) {
    return static_cast<int64_t>(stage.number(name));
  }

  int64_t documents() const {
    return made_.subset.empty() ? reader_->size() : made_.subset.size();
  }
  int64_t record_of(int64_t document) const {
    return made_.subset.empty() ? document : made_.subset[document];
  }
  int64_t length_of(int64_t document) const {
    return reader_->length(record_of(document)).value_or(0);
  }

  void compare_lengths(const Stages& stages) {
    // A record that is too short for a sample, or is damaged, is refused by itself or left out.
    const int64_t least = fields_.tokens.empty() ? 0 : 2;
    struct Found {
      int64_t document = -1, length = 0;
    };
    Found shortest, longest;
    for (int64_t i = 0; i < documents(); ++i) {
      const std::optional<int64_t> length = reader_->length(record_of(i));
      made_.longest = std::max(made_.longest, length.value_or(0));
      if (!length || *length < least) continue;
      if (shortest.document < 0 || *length < shortest.length) shortest = {i, *length};
      if (longest.document < 0 || *length > longest.length) longest = {i, *length};
    }
    if (shortest.length == longest.length || may_even_out(stages)) return;
    const auto describe = [&](const Found& found) {
      return fmt::format("{} has {} {}", reader_->place(record_of(found.document)), found.length,
                         fields_.tokens.empty() ? "numbers" : "tokens");
    };
    made_.uneven = fmt::format("{}, and {}", describe(longest), describe(shortest));
  }

  // A bucket may have samples of one length alone, and functions may change them.
  static bool may_even_out(const Stages& stages) {
    return std::ranges::any_of(stages, [](const Stage& stage) {
      const std::string_view name = stage.form->name;
      return name == "pack" || name == "pad" || name == "bucket" || calls_function(stage);
    });
  }

  // The blocks of the files, without the records that are held out.
  std::vector<int64_t> blocks_of_records() const {
    std::vector<int64_t> blocks = reader_->blocks();
    if (blocks.size() < 2) return {};
    if (made_.subset.empty()) return blocks;
    std::vector<int64_t> kept;
    int64_t end = 0, before = 0;
    for (const int64_t size : blocks) {
      end += size;
      const int64_t below = made_.subset.count_below(end);
      if (below != before) kept.push_back(below - before);
      before = below;
    }
    return kept;
  }

  void take(int64_t count) {
    if (count >= made_.samples) return;
    made_.samples = count;
    int64_t left = count;
    for (int64_t& size : made_.blocks) left -= size = std::min(size, left);
    std::erase(made_.blocks, 0);
    if (made_.packing || !made_.repeated.empty()) return;
    made_.subset =
        made_.subset.empty() ? plan::Subset::range(0, count) : made_.subset.first(count);
  }

  void repeat(int64_t times) {
    if (times == 1 || made_.samples == 0) return;
    if (made_.samples > (int64_t{1} << 53) / times)
      refuse_stage(fmt::format("repeat makes {} times {} samples", times, made_.samples),
                   "a smaller number");
    made_.repeated.push_back(made_.samples);
    made_.samples *= times;
    const std::vector<int64_t> once = made_.blocks;
    for (int64_t i = 1; i < times && !once.empty(); ++i)
      made_.blocks.insert(made_.blocks.end(), once.begin(), once.end());
  }

  void pack(const Stage& stage) {
    if (fields_.tokens.empty())
      refuse_stage(
          "pack takes documents of tokens, and the records have no field tokens of whole "
          "numbers that is input and target",
          "data.name=tokens, or JSON lines with a list `tokens` of whole numbers");
    require_lengths("pack");
    const plan::PackingOptions options{
        .tokens = whole(stage, "tokens"),
        .window = whole(stage, "window"),
        .too_long = stage.word("long") == "split" ? plan::TooLong::split : plan::TooLong::refuse};
    for (int64_t i = 0; i < documents(); ++i) require_fits(i, options);
    const auto length = [reader = reader_, subset = made_.subset](int64_t document) {
      return reader->length(subset.empty() ? document : subset[document]).value_or(0);
    };
    made_.packing = std::make_shared<const plan::Packing>(documents(), length, options);
    made_.samples = made_.packing->packs();
    made_.blocks = made_.packing->packs_of_windows();
    if (made_.samples > 0) return;
    refuse_stage(
        fmt::format("pack has no tokens: all {} documents of a part are empty or damaged{}",
                    documents(),
                    documents() > 0 ? ", such as " + reader_->place(record_of(0)) : ""),
        "documents with tokens in the training part and in the test part");
  }

  void require_fits(int64_t document, const plan::PackingOptions& options) const {
    if (options.too_long == plan::TooLong::split || length_of(document) <= options.tokens) return;
    refuse_stage(fmt::format("pack({}): {} has {} tokens", options.tokens,
                             reader_->place(record_of(document)), length_of(document)),
                 "long=split, or longer packs");
  }

  void require_lengths(std::string_view stage) const {
    if (made_.has_lengths) return;
    refuse_stage(fmt::format("{} needs the length of each record, and the index of these files "
                             "does not have it for one field alone",
                             stage),
                 "data.name=tokens, or records with one list of numbers, such as `tokens` "
                 "(tokens.npy in webdataset)");
  }

  // The targets that count are known from the index, on every rank.
  void pad_tokens(const Stages& stages) const {
    require_lengths("pad");
    for (const std::string_view name : {"map", "random_map"})
      if (find_stage(stages, name))
        refuse_stage(fmt::format("{} stands in front of pad, and the lengths of tokens are those "
                                 "of their files",
                                 name),
                     "pad without it");
  }

  // The length of a sample is that of its record.
  void bucket(const Stage& stage) {
    require_lengths("bucket");
    const auto numbers = std::make_shared<const SamplePlan>(made_);
    made_.by_length = std::make_shared<const plan::LengthBatches>(plan::LengthBatches{
        .length =
            [reader = reader_, numbers](int64_t sample) {
              const int64_t number = numbers->number_of(sample);
              const auto& subset = numbers->subset;
              return reader->length(subset.empty() ? number : subset[number]).value_or(0);
            },
        .content =
            sha256_hex(fmt::format("{}\n{}", reader_->content(), made_.samples)).substr(0, 16),
        .batch = whole(stage, "batch"),
        .window = whole(stage, "window")});
  }

  SharedReader reader_;
  const FieldChoice& fields_;
  SamplePlan made_;
};

}  // namespace

bool knows_lengths(const records::Reader& reader, const FieldChoice& fields) {
  std::string name = fields.tokens;
  if (name.empty() && fields.image.empty() && fields.inputs.size() == 1) name = fields.inputs[0];
  const int64_t first = records::first_whole(reader);
  if (name.empty() || first == reader.size() || !reader.length(first)) return false;
  if (!reader.measured_field().empty()) return reader.measured_field() == name;
  return std::ranges::all_of(reader.fields(), [&](const records::FieldSpec& field) {
    if (field.name != name) return field.encoded || field.shape;
    return !field.encoded && (!field.shape || field.shape->size() == 1);
  });
}

int64_t SamplePlan::number_of(int64_t sample) const {
  for (auto size = repeated.rbegin(); size != repeated.rend(); ++size) sample %= *size;
  return sample;
}

SamplePlan plan_samples(const SharedReader& reader, plan::Subset subset, const Stages& stages,
                        const FieldChoice& fields) {
  return SamplePlanner(reader, fields, std::move(subset)).run(stages);
}

std::string stages_of_numbers(const Stages& stages) {
  Stages kept;
  for (const Stage& stage : stages)
    if (stage.form->kind == StageKind::pack ||
        (stage.form->kind == StageKind::order && stage.form->name != "bucket"))
      kept.push_back(stage);
  return describe(kept);
}

}  // namespace trireme::data
