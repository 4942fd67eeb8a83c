#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/base/units.h>
#include <trireme/plan/partition_loads.h>
#include <algorithm>
#include <charconv>
#include <optional>

namespace trireme::plan {
namespace {

[[noreturn]] void refuse_cut(const std::string& what, const std::string& remedy = {}) {
  throw Error(ErrorCode::invalid_argument, "plan", what, remedy);
}

std::vector<std::string_view> entries_of(std::string_view text, char separator) {
  std::vector<std::string_view> entries;
  for (size_t from = 0; from <= text.size();) {
    const size_t to = std::min(text.find(separator, from), text.size());
    entries.push_back(trimmed(text.substr(from, to - from)));
    from = to + 1;
  }
  return entries;
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return {};
  return value;
}

int block_of(std::span<const BlockCost> blocks, std::string_view entry) {
  for (size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i].name == entry) return static_cast<int>(i);
  if (const auto number = whole_number(entry)) {
    if (*number < static_cast<int>(blocks.size())) return *number;
    refuse_cut(fmt::format("a cut names block {}, and the model has the blocks 0 to {}", *number,
                           blocks.size() - 1));
  }
  std::vector<std::string_view> names;
  for (const BlockCost& block : blocks) names.push_back(block.name);
  const std::string near = nearest_word(entry, names.data(), names.size());
  refuse_cut(fmt::format("no block is called '{}'{}", entry,
                         near.empty() ? "" : fmt::format("; the nearest is '{}'", near)),
             fmt::format("the first block of each further part, one of '{}' to '{}'",
                         blocks.front().name, blocks.back().name));
}

std::vector<int> cut_by_sizes(std::span<const BlockCost> blocks, std::string_view text) {
  std::vector<int> first;
  int64_t sum = 0;
  for (const std::string_view entry : entries_of(text, '+')) {
    const auto size = whole_number(entry);
    if (!size)
      refuse_cut(fmt::format("'{}' in the cut '{}' is not a number of blocks", entry, text),
                 "such as 3+3+2");
    if (*size == 0)
      refuse_cut(fmt::format("the cut '{}' leaves part {} empty", text, first.size()),
                 "at least one block in each part");
    first.push_back(static_cast<int>(std::min<int64_t>(sum, INT32_MAX)));
    sum += *size;
  }
  if (sum != static_cast<int64_t>(blocks.size()))
    refuse_cut(
        fmt::format("the cut '{}' has {} blocks, and the model {}", text, sum, blocks.size()));
  return first;
}

bool is_a_name(std::span<const BlockCost> blocks, std::string_view text) {
  return std::any_of(blocks.begin(), blocks.end(),
                     [&](const BlockCost& block) { return block.name == text; });
}

}  // namespace

std::vector<int> cut_by_hand(std::span<const BlockCost> blocks, std::string_view text) {
  const std::vector<std::string_view> entries = entries_of(text, ',');
  if (entries.size() == 1 && !is_a_name(blocks, entries[0]) &&
      text.find('+') != std::string_view::npos)
    return cut_by_sizes(blocks, text);
  std::vector<int> first = {0};
  for (const std::string_view entry : entries) {
    const int block = block_of(blocks, entry);
    const auto name = [&](int i) { return "'" + blocks[static_cast<size_t>(i)].name + "'"; };
    if (block == 0)
      refuse_cut(fmt::format("the cut '{}' begins a further part at {}, the first block, so part "
                             "0 is empty",
                             text, name(0)),
                 "the first blocks of all parts but the first");
    if (block == first.back())
      refuse_cut(fmt::format("the cut '{}' names block {} twice, so part {} is empty", text,
                             name(block), first.size() - 1));
    if (block < first.back())
      refuse_cut(
          fmt::format("the cuts of '{}' do not ascend: {} is block {}, and {} before it is "
                      "block {}",
                      text, name(block), block, name(first.back()), first.back()));
    first.push_back(block);
  }
  return first;
}

}  // namespace trireme::plan
