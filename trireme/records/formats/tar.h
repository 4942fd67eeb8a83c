// The members of a tar file: POSIX ustar, pax and GNU's long names.
#pragma once
#include <trireme/records/damage.h>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme::records {

inline constexpr uint64_t kTarBlock = 512;
inline constexpr uint64_t kMostTarMembers = 16'000'000;

struct TarHeader {
  std::string_view name;  // A view of the walk.
  uint64_t begin = 0;     // The first header of the member, which may have several.
  uint64_t data = 0, bytes = 0;
  uint64_t end() const { return data + (bytes + kTarBlock - 1) / kTarBlock * kTarBlock; }
};

// What a walk knows of the member that comes next.
class TarWalk {
 public:
  explicit TarWalk(uint64_t most_members = kMostTarMembers) : most_members_(most_members) {}
  // Reads the header at `at`. Source has at(offset, bytes), which gives a view of the bytes or
  // throws Damage, and size(). Returns false at the end mark. Members that are not files are
  // passed by. Throws Damage for a link, a device, a sparse file, a wrong checksum, more members
  // than the limit, or a file that ends without the end mark.
  template <typename Source>
  bool next(Source& source, TarHeader& found) {
    found.begin = at_;
    forget();
    for (;;) {
      if (at_ == source.size())
        throw Damage("the tar file is cut: it has no end mark behind its last member");
      const uint64_t header_at = at_;
      if (!read_header(source.at(at_, kTarBlock), header_at)) return false;
      const uint64_t data = header_at + kTarBlock;
      if (bytes_ > source.size() - data)
        throw Damage("the tar file is cut: member '" + name_ + "' at byte " +
                     std::to_string(header_at) + " has " + std::to_string(bytes_) +
                     " bytes, but " + std::to_string(source.size() - data) + " follow");
      at_ = data + (bytes_ + kTarBlock - 1) / kTarBlock * kTarBlock;
      if (is_about_next()) {
        require_short(header_at);
        take_more(source.at(data, bytes_), header_at);
        continue;
      }
      count_member();
      if (!is_file(header_at)) {
        found.begin = at_;
        forget();
        continue;
      }
      found.name = name_;
      found.data = data;
      found.bytes = bytes_;
      return true;
    }
  }

 private:
  void forget();
  void count_member();
  bool read_header(std::span<const std::byte> block, uint64_t at);  // False for the end mark.
  bool is_about_next() const;  // A header with more about the next member.
  void require_short(uint64_t at) const;
  void take_more(std::span<const std::byte> bytes, uint64_t at);
  bool is_file(uint64_t at) const;

  const uint64_t most_members_;
  uint64_t members_ = 0, at_ = 0, bytes_ = 0;
  char type_ = '0';
  std::string name_;
  // From the headers before: the name and the size of the member.
  std::string long_name_;
  uint64_t long_bytes_ = 0;
  bool has_long_name_ = false, has_long_bytes_ = false;
};

}  // namespace trireme::records
