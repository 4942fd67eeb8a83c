#include "tar.h"

#include <fmt/format.h>
#include <trireme/records/data_files.h>
#include <algorithm>
#include <charconv>

namespace trireme::records {
namespace {

constexpr uint64_t kMostHeaderBytes = 1 << 20;

std::string_view text_field(std::span<const std::byte> block, size_t from, size_t bytes) {
  const std::string_view text(reinterpret_cast<const char*>(block.data()) + from, bytes);
  return text.substr(0, text.find('\0'));
}

Damage damaged_tar(uint64_t at, std::string_view what) {
  return Damage(fmt::format("the tar header at byte {} {}", at, what));
}

// Octal digits, or GNU's form with 256 as its base.
uint64_t number_field(std::span<const std::byte> block, size_t from, size_t bytes, uint64_t at) {
  const auto byte = [&](size_t i) { return std::to_integer<uint64_t>(block[from + i]); };
  uint64_t number = 0;
  if (byte(0) == 0x80) {
    for (size_t i = 1; i < bytes; ++i) {
      if (number >> 55 != 0) throw damaged_tar(at, "has a size that is too large");
      number = number << 8 | byte(i);
    }
    return number;
  }
  size_t i = 0;
  while (i < bytes && byte(i) == ' ') ++i;
  for (; i < bytes && byte(i) != 0 && byte(i) != ' '; ++i) {
    if (byte(i) < '0' || byte(i) > '7' || number >> 60 != 0)
      throw damaged_tar(at, "has a number that is none");
    number = number << 3 | (byte(i) - '0');
  }
  return number;
}

// The sum of all bytes, with spaces in place of the sum itself.
bool has_right_sum(std::span<const std::byte> block, uint64_t at) {
  constexpr size_t kSumAt = 148, kSumBytes = 8;
  uint64_t sum = 0;
  for (size_t i = 0; i < block.size(); ++i)
    sum += i >= kSumAt && i < kSumAt + kSumBytes ? uint64_t{' '}
                                                 : std::to_integer<uint64_t>(block[i]);
  return sum == number_field(block, kSumAt, kSumBytes, at);
}

}  // namespace

void TarWalk::forget() { has_long_name_ = has_long_bytes_ = false; }

void TarWalk::count_member() {
  if (++members_ > most_members_)
    throw Damage(fmt::format("the tar file has more than {} members", most_members_),
                 "smaller shards", ErrorCode::invalid_argument);
}

bool TarWalk::read_header(std::span<const std::byte> block, uint64_t at) {
  if (std::ranges::all_of(block, [](std::byte byte) { return byte == std::byte{0}; }))
    return false;
  if (!has_right_sum(block, at)) throw damaged_tar(at, "has a wrong checksum");
  type_ = static_cast<char>(block[156]);
  bytes_ = has_long_bytes_ && !is_about_next() ? long_bytes_ : number_field(block, 124, 12, at);
  if (bytes_ >> 60 != 0) throw damaged_tar(at, "has a size that is too large");
  if (is_about_next()) return true;
  if (has_long_name_) {
    name_ = long_name_;
    return true;
  }
  name_.clear();
  const bool is_posix = text_field(block, 257, 6) == "ustar";
  if (const auto folder = text_field(block, 345, 155); is_posix && !folder.empty()) {
    name_ = folder;
    name_ += '/';
  }
  name_ += text_field(block, 0, 100);
  return true;
}

bool TarWalk::is_about_next() const {
  return type_ == 'x' || type_ == 'g' || type_ == 'L' || type_ == 'K';
}

void TarWalk::require_short(uint64_t at) const {
  if (bytes_ > kMostHeaderBytes)
    throw damaged_tar(at, fmt::format("says {} bytes of names and times, more than the limit {}",
                                      bytes_, kMostHeaderBytes));
}

void TarWalk::take_more(std::span<const std::byte> bytes, uint64_t at) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (type_ == 'L') {
    long_name_ = text.substr(0, text.find('\0'));
    has_long_name_ = true;
  }
  if (type_ != 'x') return;
  // Each entry is "LENGTH KEY=VALUE\n", and its length counts all of it.
  while (!text.empty()) {
    size_t length = 0;
    const auto [digits_end, error] =
        std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<size_t>(digits_end - text.data());
    if (error != std::errc{} || length < digits + 3 || length > text.size() ||
        text[length - 1] != '\n' || text[digits] != ' ')
      throw damaged_tar(at, "has a damaged entry of pax");
    const std::string_view entry = text.substr(digits + 1, length - digits - 2);
    const std::string_view key = entry.substr(0, entry.find('='));
    const std::string_view value =
        key.size() < entry.size() ? entry.substr(key.size() + 1) : std::string_view();
    if (key.starts_with("GNU.sparse")) throw damaged_tar(at, "is that of a sparse file");
    if (key == "path") {
      long_name_ = value;
      has_long_name_ = true;
    } else if (key == "size") {
      const auto [end, wrong] =
          std::from_chars(value.data(), value.data() + value.size(), long_bytes_);
      if (wrong != std::errc{} || end != value.data() + value.size())
        throw damaged_tar(at, "has a size that is no number");
      has_long_bytes_ = true;
    }
    text.remove_prefix(length);
  }
}

bool TarWalk::is_file(uint64_t at) const {
  if (type_ == '5' || type_ == 'V') return false;  // A folder, or the name of a volume.
  if (type_ != '0' && type_ != '\0' && type_ != '7')
    throw Damage(fmt::format("member '{}' at byte {} is a link, a device or a sparse file (type "
                             "'{}')",
                             name_, at, type_),
                 "a tar file that has files alone", ErrorCode::unsupported);
  if (leads_outside(name_))
    throw Damage(
        fmt::format("the name of member '{}' at byte {} leads outside of the tar file", name_, at),
        "relative names without \"..\"", ErrorCode::invalid_argument);
  return true;
}

}  // namespace trireme::records
