#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/config/row.h>
#include <trireme/plan/bucketing.h>
#include <trireme/plan/mixture.h>
#include <trireme/plan/order_options.h>
#include <array>

namespace trireme::plan {
namespace {

constexpr std::array<std::pair<std::string_view, OrderKind>, 4> kOrders{
    {{"full", OrderKind::full},
     {"index", OrderKind::index},
     {"blocks", OrderKind::blocks},
     {"none", OrderKind::none}}};
// data.shuffle was a flag before it was a choice.
constexpr std::array<std::pair<std::string_view, OrderKind>, 8> kFlags{{{"true", OrderKind::full},
                                                                        {"True", OrderKind::full},
                                                                        {"yes", OrderKind::full},
                                                                        {"on", OrderKind::full},
                                                                        {"false", OrderKind::none},
                                                                        {"False", OrderKind::none},
                                                                        {"no", OrderKind::none},
                                                                        {"off", OrderKind::none}}};

template <size_t count>
config::Choices names_in(const std::array<std::pair<std::string_view, OrderKind>, count>& table) {
  return [&table] {
    std::vector<std::string> names;
    for (const auto& [name, kind] : table) names.emplace_back(name);
    return names;
  };
}

std::string kind_text(const OrderOptions& options) { return std::string(to_string(options.kind)); }
void set_kind(OrderOptions& options, const std::string& text) { options.kind = order_kind(text); }

bool knows_blocks(const DataBlocks& blocks) { return !blocks || blocks->has_sizes(); }

}  // namespace

std::string_view to_string(OrderKind kind) {
  for (const auto& [name, value] : kOrders)
    if (value == kind) return name;
  return "full";
}

OrderKind order_kind(std::string_view text) {
  for (const auto& [name, value] : kOrders)
    if (name == text) return value;
  for (const auto& [name, value] : kFlags)
    if (name == text) return value;
  throw Error(ErrorCode::invalid_argument, "plan",
              fmt::format("data.shuffle is \"{}\", and there is no such order", text),
              "full, index, blocks or none");
}

bool OrderOptions::is_known() const {
  if (by_length && !by_length->length) return false;
  if (kind != OrderKind::blocks) return true;
  if (!mixture) return knows_blocks(blocks);
  for (const SourceSize& source : mixture->options().sources)
    if (!knows_blocks(source.blocks)) return false;
  return true;
}

int64_t OrderOptions::samples_of_epoch(int64_t size) const {
  if (!mixture) return size;
  if (size != mixture->numbers())
    throw Error(ErrorCode::invalid_argument, "plan",
                fmt::format("the source has {} samples, and the mixture of data.shuffle has "
                            "numbers for {}",
                            size, mixture->numbers()),
                "the MixtureSource of this mixture");
  return mixture->samples();
}

std::string OrderOptions::describe(uint64_t seed) const {
  std::string text;
  switch (kind) {
    case OrderKind::none: text = "in the order of the data"; break;
    case OrderKind::full: text = fmt::format("shuffled anew each epoch (seed {})", seed); break;
    case OrderKind::index:
      text = fmt::format("shuffled anew each epoch, by index (seed {})", seed);
      break;
    case OrderKind::blocks:
      text = fmt::format("{} in a new order each epoch, shuffled in windows of {} (seed {})",
                         mixture  ? "the blocks of each source"
                         : blocks ? fmt::format("{} blocks", blocks->count())
                                  : "1 block",
                         window, seed);
  }
  if (by_length)
    text += fmt::format(", batches of {} by length within {} of them", by_length->batch,
                        by_length->window);
  return text;
}

Json OrderOptions::to_json() const {
  Json json;
  if (kind == OrderKind::blocks) {
    json = {{"kind", "blocks"}, {"window", window}};
    if (blocks && !mixture) json["blocks"] = blocks->to_json();
  } else if (mixture || by_length) {
    json = {{"kind", to_string(kind)}};
  } else {
    return kind == OrderKind::index ? Json("index") : Json(kind == OrderKind::full);
  }
  if (mixture) json["mixture"] = mixture->to_json();
  if (by_length)
    json["by_length"] = {{"content", by_length->content},
                         {"batch", by_length->batch},
                         {"window", by_length->window}};
  return json;
}

OrderOptions OrderOptions::from_json(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return order_kind(json.get<std::string>());
  try {
    OrderOptions order = order_kind(json.at("kind").get<std::string>());
    if (json.contains("window")) order.window = json["window"].get<int64_t>();
    if (json.contains("blocks"))
      order.blocks = std::make_shared<const BlockSizes>(BlockSizes::from_json(json["blocks"]));
    if (json.contains("mixture"))
      order.mixture = std::make_shared<const Mixture>(Mixture::from_json(json["mixture"]));
    if (json.contains("by_length")) {
      const Json& lengths = json["by_length"];
      order.by_length = std::make_shared<const LengthBatches>(
          LengthBatches{.length = {},
                        .content = lengths.at("content").get<std::string>(),
                        .batch = lengths.at("batch").get<int64_t>(),
                        .window = lengths.at("window").get<int64_t>()});
    }
    return order;
  } catch (const Json::exception&) {
    throw Error(ErrorCode::invalid_argument, "plan", "a record of an order that cannot be read",
                "a log or a checkpoint as Trireme wrote it");
  }
}

bool OrderOptions::operator==(const OrderOptions& other) const {
  const auto is_plain = [](const OrderOptions& order) {
    return order.kind != OrderKind::blocks && !order.mixture && !order.by_length;
  };
  if (kind != other.kind) return false;
  if (is_plain(*this) && is_plain(other)) return true;
  return to_json() == other.to_json();
}

config::Rows rows_of(const OrderOptions*) {
  using O = OrderOptions;
  // all_of() counts the members of an aggregate, and this struct has constructors.
  const config::Rows rows[] = {
      config::row_as_text<O>(
          kind_text, set_kind,
          {.name = "data.shuffle",
           .meaning = "The order of an epoch's samples, another one each epoch, from train.seed. "
                      "full: shuffled as a whole; index: the same, without a table in memory; "
                      "blocks: the blocks of the files in another order, and shuffled in windows, "
                      "so that files are read in sequence; none: as the data is. true means full, "
                      "and false none.",
           .choices = names_in(kOrders),
           .also = names_in(kFlags)}),
      config::row(&O::window,
                  {.name = "data.window",
                   .meaning = "blocks: the samples of so many places in a row change places. A "
                              "process needs the blocks of one window at hand.",
                   .range = config::at_least(1),
                   .only_for = {"data.shuffle", {"blocks"}}})};
  return config::joined(rows, std::size(rows));
}

}  // namespace trireme::plan
