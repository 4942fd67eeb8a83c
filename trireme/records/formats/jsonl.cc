// JSON lines: a flat object in each line.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/records/formats.h>
#include <trireme/records/remote/address.h>
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include "json_line.h"
#include "text_rows.h"

namespace trireme::records {
namespace {

// The records that lack a list or a text which most have, by its name, as pairs [from, to). Only
// indexes have them that know all: up to so many records of a member, in few enough places.
constexpr const char* kLackingFact = "_lacking";
constexpr uint64_t kMostLacking = 10'000;
constexpr size_t kMostPlaces = 1'000'000;

CellType type_of_member(const JsonMember& member) {
  if (member.kind == JsonKind::text) return CellType::text;
  if (member.kind == JsonKind::boolean) return CellType::boolean;
  return member.are_integers ? CellType::integer : CellType::real;
}

// Finds the types of the members that the lines have.
class JsonScan {
 public:
  explicit JsonScan(const OpenOptions& options) : options_(options), wanted_(options.columns) {
    if (!options.label.empty()) wanted_.push_back(options.label);
  }

  void file(uint32_t file, const Shards& shards, IndexContent& content) {
    Scanner scanner = shards.scanner(file);
    uint32_t number = 0;
    for (uint64_t at = 0; at < scanner.size();) {
      const std::string_view line = scanner.line(at);
      ++number;
      if (!trimmed(line).empty()) {
        Entry entry{.offset = at, .bytes = line.size(), .file = file, .extra = number};
        try {
          take(line, entry);
          see_missing(shards.files().names[file], number);
          see_lacking(content.entries.size());
          content.add(entry);
        } catch (const Damage& damage) {
          content.add_damaged(
              entry, fmt::format("{}, line {} at byte {}", shards.path(file).string(), number, at),
              damage);
        }
      }
      at += line.size();
    }
  }

  void finish(IndexContent& content) {
    for (const std::string& name : wanted_)
      if (!find(name))
        throw Error(ErrorCode::invalid_argument, "data",
                    fmt::format("'{}': no line that is whole has a member '{}'",
                                shown_path(options_.path), name),
                    "a member that the lines have");
    require_measured();
    const size_t whole = content.entries.size() - content.damaged.size();
    for (size_t i = 0; i < members_.size(); ++i) members_[i].is_everywhere = seen_[i] == whole;
    content.facts["columns"] = json_of_columns(members_);
    for (size_t i = 0; i < members_.size(); ++i)
      if (const TextColumn& member = members_[i]; !member.is_everywhere && !member.is_array &&
                                                  member.type != CellType::text &&
                                                  seen_[i] >= whole / 2)
        content.doubtful[member.name] = missing_[i];
    add_lacking(whole, content);
    for (size_t i = 0; i < members_.size(); ++i)
      if (members_[i].is_everywhere && members_[i].type == CellType::integer)
        content.add_range(members_[i].name, ranges_[i].least, ranges_[i].largest);
  }

 private:
  // Members that were seen are those of whole lines alone.
  void take(std::string_view line, Entry& entry) {
    line_.clear();
    JsonMember member;
    for (JsonLine object(line); object.next(member);) {
      const auto* const known = find(member.name);
      if (known) require_type(member, *known);
      if (member.name == options_.label) entry.label = label_of(member);
      if (line_.size() == kMostMembers) throw too_many_members();
      line_.push_back(member);
    }
    require_once();
    require_wanted();
    is_first_ = members_.empty();
    here_.assign(members_.size(), false);
    int64_t longest_text = -1, longest_array = -1, measured = -1;
    for (const JsonMember& each : line_) {
      const size_t i = index_of(each);
      here_[i] = true;
      ++seen_[i];
      if (each.kind == JsonKind::numbers) longest_array = std::max(longest_array, each.count);
      if (each.kind == JsonKind::numbers && each.name == options_.length_of) measured = each.count;
      if (each.kind == JsonKind::text)
        longest_text = std::max(longest_text, static_cast<int64_t>(each.raw.size()));
      see_numbers(each, ranges_[i]);
    }
    entry.length = longest_array >= 0 ? longest_array : longest_text;
    if (!options_.length_of.empty()) entry.length = measured;
  }

  const TextColumn* find(std::string_view name) const {
    const auto found = std::ranges::find(members_, name, &TextColumn::name);
    return found == members_.end() ? nullptr : &*found;
  }

  void require_once() {
    names_.clear();
    for (const JsonMember& each : line_) names_.push_back(each.name);
    std::ranges::sort(names_);
    if (const auto twice = std::ranges::adjacent_find(names_); twice != names_.end())
      throw Damage(fmt::format("the member '{}' is there twice", *twice),
                   "one value for each member");
    if (names_.size() + members_.size() <= kMostMembers) return;
    const auto added = std::ranges::count_if(names_, [&](auto name) { return !find(name); });
    if (members_.size() + static_cast<size_t>(added) > kMostMembers) throw too_many_members();
  }

  void require_measured() const {
    const std::string& name = options_.length_of;
    if (name.empty()) return;
    const auto* const member = find(name);
    if (!member || !member->is_array)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("'{}': {} '{}'", shown_path(options_.path),
                              member ? "no list of numbers is the member"
                                     : "no line that is whole has a member",
                              name),
                  "a list of numbers that the lines have");
  }

  static Damage too_many_members() {
    return Damage(fmt::format("the lines have more than {} different members", kMostMembers),
                  "objects with the same members", ErrorCode::unsupported);
  }

  void require_wanted() const {
    for (const std::string& name : wanted_)
      if (!std::ranges::binary_search(names_, std::string_view(name)))
        throw Damage(fmt::format("there is no member '{}'", name), "a value for it",
                     ErrorCode::invalid_argument);
  }

  // The first line that lacks a member. One that came later is missing in the first line.
  void see_missing(const std::string& path, uint32_t line) {
    const auto place = [&] { return fmt::format("{}: line {}", path, line); };
    if (first_place_.empty()) first_place_ = place();
    missing_.resize(members_.size());
    for (size_t i = 0; i < members_.size(); ++i)
      if (missing_[i].empty() && (!here_[i] || (seen_[i] == 1 && !is_first_)))
        missing_[i] = fmt::format("{} has no member '{}'", here_[i] ? first_place_ : place(),
                                  members_[i].name);
  }

  // The entries between those that have a member, as pairs [from, to).
  struct Lacking {
    std::vector<std::pair<size_t, size_t>> places{};
    size_t next = 0;  // Behind the last entry that has it.
    uint64_t entries = 0;
    bool are_too_many = false;
  };
  static bool may_lack(const TextColumn& member) {
    return member.is_array || member.type == CellType::text;
  }
  void see_lacking(size_t entry) {
    lacking_.resize(members_.size());
    for (size_t i = 0; i < members_.size(); ++i)
      if (here_[i] && may_lack(members_[i])) close_gap(lacking_[i], entry);
  }
  // A member that too many entries lack takes nothing from the others.
  void close_gap(Lacking& lacking, size_t entry) {
    if (lacking.next < entry && !lacking.are_too_many) {
      lacking.entries += entry - lacking.next;
      lacking.places.emplace_back(lacking.next, entry);
      ++places_;
      if (lacking.entries > 2 * kMostLacking || places_ > kMostPlaces) {
        lacking.are_too_many = true;
        places_ -= lacking.places.size();
        lacking.places = {};
      }
    }
    lacking.next = entry + 1;
  }

  // Damaged entries may be among them.
  void add_lacking(size_t whole, IndexContent& content) {
    for (size_t i = 0; i < lacking_.size(); ++i) {
      const TextColumn& member = members_[i];
      if (member.is_everywhere || !may_lack(member)) continue;
      close_gap(lacking_[i], content.entries.size());
      if (lacking_[i].are_too_many) continue;
      if (seen_[i] < whole / 2 || whole - seen_[i] > kMostLacking) continue;
      content.facts[kLackingFact][member.name] = lacking_[i].places;
    }
  }

  struct Range {
    int64_t least = 0, largest = 0;
  };
  static void see_numbers(const JsonMember& member, Range& range) {
    const bool is_number = member.kind == JsonKind::number || member.kind == JsonKind::numbers;
    if (!is_number || !member.are_integers) return;
    std::string_view raw = member.raw;
    for (int64_t i = 0; i < member.count; ++i) {
      const size_t end = std::min(raw.find(','), raw.size());
      const int64_t number = parse_cell<int64_t>(raw.substr(0, end)).value_or(-1);
      range = {std::min(range.least, number), std::max(range.largest, number)};
      raw.remove_prefix(std::min(end + 1, raw.size()));
    }
  }

  static int64_t label_of(const JsonMember& member) {
    const auto number = parse_cell<int64_t>(member.raw);
    if (member.kind != JsonKind::number || !number)
      throw Damage(fmt::format("the label '{}' is not a whole number", member.name),
                   "labels as numbers", ErrorCode::invalid_argument);
    return *number;
  }

  static void require_type(const JsonMember& member, const TextColumn& known) {
    const CellType type = type_of_member(member);
    const auto is_number = [](CellType each) {
      return each == CellType::integer || each == CellType::real;
    };
    const bool fits = known.is_array == (member.kind == JsonKind::numbers) &&
                      (known.type == type || (is_number(known.type) && is_number(type)));
    if (!fits)
      throw Damage(
          fmt::format("the member '{}' has another type than in the lines before", member.name),
          "one type for each member", ErrorCode::invalid_argument);
  }

  size_t index_of(const JsonMember& member) {
    const CellType type = type_of_member(member);
    const auto found = std::ranges::find(members_, member.name, &TextColumn::name);
    if (found == members_.end()) {
      members_.push_back({.name = std::string(member.name),
                          .type = type,
                          .is_array = member.kind == JsonKind::numbers});
      seen_.push_back(0);
      ranges_.emplace_back();
      here_.push_back(false);
      return members_.size() - 1;
    }
    if (type == CellType::real) found->type = CellType::real;
    return static_cast<size_t>(found - members_.begin());
  }

  static constexpr size_t kMostMembers = 4096;
  const OpenOptions& options_;
  std::vector<std::string> wanted_;  // Columns and label.
  std::vector<TextColumn> members_;
  std::vector<uint64_t> seen_;           // The number of lines that have the member.
  std::vector<Range> ranges_;            // The range of the integers of each member.
  std::vector<Lacking> lacking_;         // The entries without each member, and the
  size_t places_ = 0;                    // number of pairs in all of them.
  std::vector<std::string> missing_;     // The first line without the member, and that it is.
  std::vector<JsonMember> line_;         // The line in hand,
  std::vector<std::string_view> names_;  // its names, sorted,
  std::vector<bool> here_;               // which of the members it has,
  bool is_first_ = true;                 // and whether it is the first of all.
  std::string first_place_;
};

class JsonlReader : public IndexedReader {
 public:
  // `lacking` has the records without a list or text that is needed. `measured` is the list whose
  // lengths the index has. If it is empty, lengths are those of the only list, or of texts.
  JsonlReader(IndexedFiles files, std::vector<TextColumn> members, std::set<int64_t> lacking,
              std::string measured)
      : IndexedReader(std::move(files.shards), std::move(files.index), specs_of_columns(members)),
        members_(std::move(members)),
        lacking_(std::move(lacking)),
        measured_(std::move(measured)),
        has_lengths_(!measured_.empty() ||
                     std::ranges::count(columns_of_json(this->index().facts().at("columns")), true,
                                        &TextColumn::is_array) < 2) {}

  std::vector<int64_t> damaged() const override {
    std::set<int64_t> all = lacking_;
    const std::vector<int64_t> of_index = IndexedReader::damaged();
    all.insert(of_index.begin(), of_index.end());
    return {all.begin(), all.end()};
  }
  // The length of another member of the line would be a wrong one.
  std::optional<int64_t> length(int64_t index) const override {
    return !has_lengths_ || lacking_.contains(index) ? std::nullopt : IndexedReader::length(index);
  }
  std::string_view measured_field() const override { return measured_; }

 protected:
  void read_entry(const Entry& entry, Record& record) const override {
    // A number takes two bytes of the line at least, and at most eight of the memory; texts take
    // no more than in the line. Each value begins at a multiple of eight.
    const uint64_t more = 5 * entry.bytes + 8 * (members_.size() + 1);
    const auto [bytes, room] =
        shards().read_with_room(entry.file, entry.offset, entry.bytes, more, record);
    record.sizes.resize(members_.size());
    record.fields.resize(members_.size());
    auto left = room;
    JsonMember member;
    size_t expected = 0, found = 0;
    for (JsonLine object({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
         object.next(member);) {
      const size_t slot = slot_of(member.name, expected);
      if (slot == members_.size()) continue;
      expected = slot + 1;
      Field& field = record.fields[slot];
      if (!field.name.empty()) throw changed_line();
      field = {.name = members_[slot].name, .dtype = dtype_of(members_[slot].type)};
      fill(field, members_[slot], member, left, record.sizes[slot]);
      if (members_[slot].is_array) field.shape = std::span(record.sizes).subspan(slot, 1);
      ++found;
    }
    if (found < members_.size()) leave_out_missing(record);
  }

  void leave_out_missing(Record& record) const {
    for (size_t i = 0; i < members_.size(); ++i)
      if (members_[i].is_everywhere && record.fields[i].name.empty())
        throw Damage(fmt::format("there is no member '{}'", members_[i].name), "a value for it");
    std::erase_if(record.fields, [](const Field& field) { return field.name.empty(); });
  }
  std::string name_of(const Entry& entry, int64_t) const override {
    return fmt::format("line {}", entry.extra);
  }

 private:
  static Damage changed_line() {
    return Damage("the line is another one than when it was indexed",
                  "trireme data index, if the change was meant");
  }

  // Lines mostly have their members in one order.
  size_t slot_of(std::string_view name, size_t expected) const {
    if (expected < members_.size() && members_[expected].name == name) return expected;
    return static_cast<size_t>(std::ranges::find(members_, name, &TextColumn::name) -
                               members_.begin());
  }

  // Takes the place of the value from `left`.
  static void fill(Field& field, const TextColumn& column, const JsonMember& member,
                   std::span<std::byte>& left, int64_t& count) {
    const CellType type = type_of_member(member);
    const bool fits =
        column.is_array == (member.kind == JsonKind::numbers) &&
        (type == column.type || (type == CellType::integer && column.type == CellType::real));
    if (!fits) throw changed_line();
    size_t bytes = 0;
    if (type == CellType::text) {
      field.encoded = true;
      if (!member.has_escapes) {
        field.bytes = std::as_bytes(std::span(member.raw));
        return;
      }
      auto* const start = reinterpret_cast<char*>(left.data());
      bytes = static_cast<size_t>(unescape_json(member.raw, start) - start);
    } else if (type == CellType::boolean) {
      left[0] = std::byte{member.raw == "true"};
      bytes = 1;
    } else {
      count = member.count;
      bytes = column.type == CellType::integer ? write_numbers_of<int64_t>(member, left)
                                               : write_numbers_of<float>(member, left);
    }
    field.bytes = left.first(bytes);
    left = left.subspan((bytes + 7) / 8 * 8);
  }

  template <typename T>
  static size_t write_numbers_of(const JsonMember& member, std::span<std::byte> to) {
    std::string_view raw = member.raw;
    for (int64_t i = 0; i < member.count; ++i) {
      const size_t end = std::min(raw.find(','), raw.size());
      const auto number = parse_cell<T>(raw.substr(0, end));
      if (!number)
        throw Damage(fmt::format("the member '{}' has the number {}, which is too large",
                                 member.name, raw.substr(0, std::min<size_t>(end, 40))),
                     "a smaller number", ErrorCode::unsupported);
      std::memcpy(to.data() + static_cast<size_t>(i) * sizeof(T), &*number, sizeof(T));
      raw.remove_prefix(std::min(end + 1, raw.size()));
    }
    return static_cast<size_t>(member.count) * sizeof(T);
  }

  std::vector<TextColumn> members_;
  std::set<int64_t> lacking_;
  std::string measured_;
  bool has_lengths_ = false;
};

// The index may have come with the data, so it may say anything.
void add_lacking_in(const Json& places, int64_t records, std::set<int64_t>& lacking) {
  uint64_t left = 2 * kMostLacking;  // Damaged records are among them.
  for (const auto& [from, to] : places.get<std::vector<std::pair<int64_t, int64_t>>>())
    for (int64_t record = std::max<int64_t>(0, from); record < std::min(to, records); ++record) {
      if (left-- == 0)
        throw Error(
            ErrorCode::corrupt, "data",
            fmt::format("the index names more than {} records without a member", 2 * kMostLacking),
            "trireme data index");
      lacking.insert(record);
    }
}

// Makes fields of the needed members that most lines have. Returns the records that lack a list or
// a text of them. Those that lack a number are found when they are read.
std::set<int64_t> take_needed(const OpenOptions& options, const Json& facts, int64_t records,
                              std::vector<TextColumn>& members) {
  if (!options.needed) return {};
  const Json numbers = facts.value(kDoubtfulFact, Json::object());
  const Json others = facts.value(kLackingFact, Json::object());
  std::vector<TextColumn> all = members;
  const auto make_fields_of = [&](const Json& lacked) {
    for (TextColumn& member : all) member.is_everywhere |= lacked.contains(member.name);
  };
  // Lists and texts that some lines lack are chosen by their names, or if nothing else can be.
  make_fields_of(numbers);
  std::optional<std::set<std::string, std::less<>>> needed;
  try {
    needed = needed_of(options, specs_of_columns(all));
  } catch (const Error&) {
    if (others.empty()) throw;
  }
  make_fields_of(others);
  if (!needed) needed = needed_of(options, specs_of_columns(all));
  std::set<int64_t> lacking;
  for (size_t i = 0; i < members.size(); ++i) {
    if (!needed->contains(members[i].name)) continue;
    members[i].is_everywhere = all[i].is_everywhere;
    if (others.contains(members[i].name))
      add_lacking_in(others.at(members[i].name), records, lacking);
  }
  return lacking;
}

}  // namespace

SharedReader open_jsonl(const OpenOptions& options) {
  JsonScan scan(options);
  Json index_options = options_of_lengths(options);
  index_options["columns"] = options.columns;
  index_options["label"] = options.label;
  IndexedFiles files = index_files(
      options, "jsonl", shards_of(options, "jsonl"), std::move(index_options),
      [&](uint32_t file, const Shards& shards, IndexContent& content) {
        scan.file(file, shards, content);
      },
      [&](IndexContent& content) { scan.finish(content); });
  const Json& facts = files.index->facts();
  std::vector<TextColumn> chosen = chosen_columns(options, facts);
  std::set<int64_t> lacking =
      take_needed(options, facts, std::ssize(files.index->entries()), chosen);
  return std::make_shared<JsonlReader>(std::move(files), std::move(chosen), std::move(lacking),
                                       options.length_of);
}

}  // namespace trireme::records
