#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/base/units.h>
#include <trireme/faults/faults.h>
#include <trireme/faults/words.h>
#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

namespace trireme {
namespace {

using faults::kKinds, faults::kPlaces, faults::kSlowParts, faults::names_of;

std::vector<std::string_view> split(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find_first_of(separators);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// The words of one fault's text. Each word is asked for once; a word that was never
// asked for is refused.
class Words {
 public:
  Words(size_t number, std::string_view text) : number_(number), text_(text) {
    const size_t end = text.find_first_of(":@");
    kind = trimmed(text.substr(0, end));
    if (end == std::string_view::npos) return;
    for (const std::string_view word : split(text.substr(end + 1), ",@")) {
      const size_t equals = word.find('=');
      const Word parsed{trimmed(word.substr(0, equals)), equals == std::string_view::npos
                                                             ? std::optional<std::string_view>()
                                                             : trimmed(word.substr(equals + 1))};
      if (parsed.key.empty()) refuse("a word is empty", "kill:rank=2@step=40");
      refuse_old_word(parsed.key, parsed.value ? fmt::format("={}", *parsed.value) : "");
      for (const Word& other : words_)
        if (other.key == parsed.key)
          refuse(fmt::format("'{}' is given twice", parsed.key), "it once");
      words_.push_back(parsed);
    }
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& remedy) const {
    throw Error(ErrorCode::invalid_argument, "inject",
                fmt::format("fault {}, '{}': {}", number_, text_, what), remedy);
  }

  // Earlier versions had their own words for phases.
  void refuse_old_word(std::string_view word, const std::string& behind,
                       const std::string& before = "") const {
    for (const auto& old : faults::kOldWords)
      if (word == old.word)
        refuse(fmt::format("'{}' is no longer a phase; this phase is '{}'", word,
                           to_string(old.phase)),
               fmt::format("{}{}{}", before, to_string(old.phase), behind));
  }

  bool flag(std::string_view key) {
    const Word* word = take(key);
    if (word && word->value) refuse(fmt::format("'{}' takes no value", key), std::string(key));
    return word != nullptr;
  }
  std::optional<std::string_view> value(std::string_view key, std::string_view example) {
    const Word* word = take(key);
    if (!word) return std::nullopt;
    if (!word->value || word->value->empty())
      refuse(fmt::format("'{}' has no value", key), fmt::format("{}={}", key, example));
    return word->value;
  }
  std::string_view needed(std::string_view key, std::string_view example) {
    const auto given = value(key, example);
    if (!given) refuse(fmt::format("it needs '{}'", key), fmt::format("{}={}", key, example));
    return *given;
  }
  int64_t number(std::string_view key, std::string_view text, int64_t least, int64_t most) const {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < least ||
        number > most)
      refuse(fmt::format("{} is '{}', which is not a whole number from {} to {}", key, text, least,
                         most),
             fmt::format("{}={}", key, least));
    return number;
  }
  Milliseconds duration(std::string_view key, std::string_view text) const {
    try {
      const Milliseconds duration = parse_duration(text);
      if (duration.count() >= 1) return duration;
    } catch (const Error&) {
    }
    refuse(fmt::format("{} is '{}', which is not a duration of 1 ms or more", key, text),
           fmt::format("{}=20ms", key));
  }
  // Called at the end: every word must have been asked for.
  void finish() const {
    for (const Word& word : words_) {
      if (std::find(asked_.begin(), asked_.end(), word.key) != asked_.end()) continue;
      const std::string near = nearest_word(word.key, asked_.data(), asked_.size());
      refuse(fmt::format("{} has no word '{}'", kind, word.key),
             near.empty() ? fmt::format("{}", fmt::join(asked_, ", ")) : near);
    }
  }

  std::string_view kind;

 private:
  struct Word {
    std::string_view key;
    std::optional<std::string_view> value;
  };
  const Word* take(std::string_view key) {
    asked_.push_back(key);
    const auto found = std::find_if(words_.begin(), words_.end(),
                                    [key](const Word& word) { return word.key == key; });
    return found == words_.end() ? nullptr : &*found;
  }

  size_t number_;
  std::string_view text_;
  std::vector<Word> words_;
  std::vector<std::string_view> asked_;
};

constexpr int64_t kMostRank = 100'000, kMostStep = int64_t{1} << 50;

Phase read_phase(Words& words) {
  const auto name = words.value("phase", "backward");
  if (!name) return Phase::backward;
  const auto names = names_of(kPlaces);
  const auto found = std::find(names.begin(), names.end(), *name);
  if (found != names.end()) return kPlaces[static_cast<size_t>(found - names.begin())];
  words.refuse_old_word(*name, "", "phase=");
  const std::string near = nearest_word(*name, names.data(), names.size());
  words.refuse(fmt::format("phase is '{}', which is none of {}", *name, fmt::join(names, ", ")),
               "phase=" + (near.empty() ? "backward" : near));
}

void read_slow(Words& words, Fault& fault) {
  int given = 0;
  for (const Phase phase : kSlowParts) {
    const auto text = words.value(to_string(phase), "20ms");
    if (!text) continue;
    fault.phase = phase;
    fault.duration = words.duration(to_string(phase), *text);
    ++given;
  }
  if (given != 1)
    words.refuse(
        fmt::format("it needs one of {} with the delay", fmt::join(names_of(kSlowParts), ", ")),
        "forward=20ms");
  if (const auto percent = words.value("percent", "5"))
    fault.percent = static_cast<int>(words.number("percent", *percent, 1, 100));
}

void read_link(Words& words, Fault& fault) {
  const std::string_view link = words.needed("link", "0-1");
  const size_t dash = link.find('-');
  if (dash == std::string_view::npos)
    words.refuse(fmt::format("link is '{}', which is not a pair of ranks", link), "link=0-1");
  fault.rank = static_cast<int>(words.number("link", link.substr(0, dash), 0, kMostRank));
  fault.peer = static_cast<int>(words.number("link", link.substr(dash + 1), 0, kMostRank));
  if (fault.rank == fault.peer)
    words.refuse(fmt::format("link is '{}', and a rank has no link to itself", link), "link=0-1");
}

void read_random(Words& words, Fault& fault) {
  fault.seed = static_cast<uint64_t>(
      words.number("seed", words.needed("seed", "7"), 0, std::numeric_limits<int64_t>::max()));
  fault.count =
      static_cast<int>(words.number("faults", words.needed("faults", "5"), 1, 1'000'000));
  fault.steps = words.number("steps", words.needed("steps", "200"), 2, kMostStep);
  for (const std::string_view name :
       split(words.value("kinds", "kill+stop").value_or("kill+stop"), "+")) {
    const auto found = std::find(kKinds.begin(), kKinds.end() - 1, name);
    if (found == kKinds.end() - 1)
      words.refuse(
          fmt::format(
              "kinds has '{}', which is none of kill, stop, slow, corrupt, drop and disk-full",
              name),
          "kinds=kill+stop");
    fault.kinds.push_back(static_cast<FaultKind>(found - kKinds.begin()));
  }
}

Fault parse_fault(size_t number, std::string_view text) {
  Words words(number, text);
  const auto found = std::find(kKinds.begin(), kKinds.end(), words.kind);
  if (found == kKinds.end()) {
    const std::string near = nearest_word(words.kind, kKinds.data(), kKinds.size());
    words.refuse(fmt::format("there is no fault '{}'", words.kind),
                 near.empty() ? fmt::format("{}", fmt::join(kKinds, ", ")) : near);
  }
  Fault fault;
  fault.kind = static_cast<FaultKind>(found - kKinds.begin());
  const bool has_rank = fault.kind != FaultKind::random && fault.kind != FaultKind::drop;
  if (has_rank) {
    const auto rank =
        fault.kind == FaultKind::disk_full ? words.value("rank", "0") : words.needed("rank", "1");
    fault.rank = static_cast<int>(words.number("rank", rank.value_or("0"), 0, kMostRank));
  }
  switch (fault.kind) {
    case FaultKind::kill: fault.phase = read_phase(words); break;
    case FaultKind::stop:
      fault.phase = read_phase(words);
      if (const auto text_of = words.value("for", "3s"))
        fault.duration = words.duration("for", *text_of);
      break;
    case FaultKind::slow: read_slow(words, fault); break;
    case FaultKind::corrupt:
      // The word says where the rank received the bytes, and may be left out.
      words.flag("exchange");
      fault.phase = Phase::optimizer;
      break;
    case FaultKind::drop:
      read_link(words, fault);
      fault.phase = Phase::exchange;
      break;
    case FaultKind::disk_full: fault.phase = Phase::checkpoint; break;
    case FaultKind::random: read_random(words, fault); break;
  }
  if (fault.kind != FaultKind::random) {
    const bool must_say_when = fault.kind == FaultKind::kill || fault.kind == FaultKind::stop ||
                               fault.kind == FaultKind::drop;
    const auto step = must_say_when ? words.needed("step", "40") : words.value("step", "40");
    fault.step = words.number("step", step.value_or("1"), 1, kMostStep);
  }
  words.finish();
  return fault;
}

}  // namespace

std::vector<Fault> parse_faults(std::string_view text) {
  std::vector<Fault> faults;
  if (trimmed(text) == "none") return faults;
  size_t number = 0;
  for (const std::string_view part : split(text, ";")) {
    ++number;
    // A ; at the end makes no fault.
    if (!part.empty()) faults.push_back(parse_fault(number, part));
  }
  return faults;
}

}  // namespace trireme
