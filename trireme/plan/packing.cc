#include <fmt/format.h>

#include <trireme/base/error.h>
#include <trireme/plan/packing.h>
#include <algorithm>
#include <set>
#include <utility>

namespace trireme::plan {
namespace {

[[noreturn]] void refuse_packing(const std::string& what, std::string_view remedy) {
  throw Error(ErrorCode::invalid_argument, "plan", "packing: " + what, remedy);
}

}  // namespace

Packing::Packing(int64_t documents, std::function<int64_t(int64_t)> length, PackingOptions options)
    : documents_(documents), length_(std::move(length)), options_(options) {
  if (documents < 0) refuse_packing(fmt::format("{} documents", documents), "0 or more");
  if (options.tokens < 1)
    refuse_packing(fmt::format("a pack of {} tokens", options.tokens),
                   "the tokens of a sample, such as 2048");
  if (options.tokens > INT32_MAX)
    refuse_packing(fmt::format("a pack of {} tokens", options.tokens), "less than 2^31");
  if (options.window < 1)
    refuse_packing(fmt::format("windows of {} documents", options.window), "4096");
  first_packs_.push_back(0);
  for (int64_t number = 0; number * options.window < documents; ++number) {
    const Packs packs = window(number);
    for (const std::vector<PackPart>& pack : packs) {
      int64_t targets = 0;
      for (const auto& [document, from, count] : pack) {
        tokens_ += count;
        targets += from + count == length_(document) ? count - 1 : count;
      }
      targets_.push_back(static_cast<int32_t>(targets));
    }
    first_packs_.push_back(first_packs_.back() + std::ssize(packs));
  }
}

Packing::Packs Packing::window(int64_t number) const {
  const int64_t begin = number * options_.window;
  const int64_t end = std::min(documents_, begin + options_.window);
  Packs packs;
  std::vector<PackPart> rests;
  for (int64_t document = begin; document < end; ++document) {
    const int64_t length = length_(document);
    if (length < 0)
      refuse_packing(fmt::format("document {} has a length of {}", document, length),
                     "the number of its tokens");
    if (length > options_.tokens && options_.too_long == TooLong::refuse)
      refuse_packing(fmt::format("document {} has {} tokens, and a pack has {}", document, length,
                                 options_.tokens),
                     "longer packs, or long documents split into several packs");
    int64_t from = 0;
    for (; length - from >= options_.tokens; from += options_.tokens)
      packs.push_back({{document, from, options_.tokens}});
    if (from < length) rests.push_back({document, from, length - from});
  }
  std::stable_sort(rests.begin(), rests.end(),
                   [](const PackPart& a, const PackPart& b) { return a.count > b.count; });
  // The room that is left in each open pack, and the pack.
  std::set<std::pair<int64_t, size_t>> open;
  for (const PackPart& part : rests) {
    auto best = open.lower_bound({part.count, 0});
    if (best == open.end()) {
      best = open.emplace(options_.tokens, packs.size()).first;
      packs.emplace_back();
    }
    const auto [room, pack] = *best;
    open.erase(best);
    packs[pack].push_back(part);
    if (room > part.count) open.emplace(room - part.count, pack);
  }
  for (std::vector<PackPart>& pack : packs)
    std::sort(pack.begin(), pack.end(),
              [](const PackPart& a, const PackPart& b) { return a.document < b.document; });
  return packs;
}

std::vector<PackPart> Packing::pack(int64_t number) const {
  if (number < 0 || number >= packs())
    refuse_packing(fmt::format("pack {} is outside 0..{}", number, packs() - 1),
                   "a sample of this data set");
  const auto behind = std::upper_bound(first_packs_.begin(), first_packs_.end(), number);
  const int64_t of_window = std::prev(behind) - first_packs_.begin();
  auto found = kept_.find(of_window);
  if (found == kept_.end()) {
    if (kept_.size() == kKept) kept_.clear();
    found = kept_.emplace(of_window, window(of_window)).first;
  }
  return found->second[static_cast<size_t>(number - *std::prev(behind))];
}

std::vector<int64_t> Packing::packs_of_windows() const {
  std::vector<int64_t> packs;
  for (size_t window = 1; window < first_packs_.size(); ++window)
    packs.push_back(first_packs_[window] - first_packs_[window - 1]);
  return packs;
}

double Packing::fill() const {
  if (packs() == 0) return 1;
  return static_cast<double>(tokens_) /
         (static_cast<double>(packs()) * static_cast<double>(options_.tokens));
}

std::string Packing::describe() const {
  return fmt::format("{} documents of {} tokens in {} packs of {}: {:.2f}% full\n", documents_,
                     tokens_, packs(), options_.tokens, 100 * fill());
}

Json Packing::to_json() const {
  return {{"documents", documents_},
          {"document_tokens", tokens_},
          {"packs", packs()},
          {"tokens", options_.tokens},
          {"window", options_.window},
          {"too_long", options_.too_long == TooLong::split ? "split" : "refuse"},
          {"fill", fill()}};
}

void check(const Packing& packing) {
  const auto is_wrong = [](const std::string& what) {
    throw Error(ErrorCode::internal, "plan", "packing: " + what);
  };
  int64_t tokens = 0;
  // The parts that a window has had so far: a window's packs follow each other.
  std::set<std::pair<int64_t, int64_t>> parts;
  for (int64_t number = 0; number < packing.packs(); ++number) {
    int64_t room = packing.options().tokens, last = -1;
    for (const auto& [document, from, count] : packing.pack(number)) {
      if (document <= last || count < 1 || from < 0)
        is_wrong(fmt::format("pack {} has tokens {} to {} of document {} behind document {}",
                             number, from, from + count, document, last));
      if (!parts.emplace(document, from).second)
        is_wrong(fmt::format("token {} of document {} is in two packs", from, document));
      last = document;
      room -= count;
      tokens += count;
    }
    if (room < 0) is_wrong(fmt::format("pack {} has {} tokens too many", number, -room));
  }
  if (tokens != packing.tokens())
    is_wrong(fmt::format("the packs have {} tokens of {}", tokens, packing.tokens()));
}

}  // namespace trireme::plan
