#include "image_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace trireme::records {
namespace fs = std::filesystem;

ImageFilesReader::ImageFilesReader(fs::path base, std::shared_ptr<const Index> index,
                                   UnpackLimits limits)
    : base_((base / "").string()),
      index_(std::move(index)),
      fields_{{.name = "image", .encoded = true},
              {.name = "label", .dtype = plan::DType::int64, .shape = std::vector<int64_t>{}}},
      class_names_(index_->facts().value("classes", std::vector<std::string>{})),
      limits_(std::move(limits)) {}

Entry ImageFilesReader::entry_of(int64_t index) const {
  require_record(index, size());
  return index_->entry(index);
}

std::string ImageFilesReader::path_of(const Entry& entry) const {
  const std::string_view names = index_->names();
  const bool fits = entry.offset <= names.size() && entry.extra <= names.size() - entry.offset;
  if (!fits || leads_outside(names.substr(entry.offset, entry.extra)))
    throw Error(ErrorCode::corrupt, "data",
                fmt::format("the index {} has an entry without the name of a file in '{}'",
                            index_->path().string(), base_),
                "trireme data index");
  return std::string(base_).append(names.substr(entry.offset, entry.extra));
}

void ImageFilesReader::read(int64_t index, Record& record) const {
  const Entry entry = entry_of(index);
  record.clear();
  with_place([&] { return place(index); },
             [&] {
               index_->require_whole(index);
               const DataFile file(path_of(entry).c_str());
               if (file.size() != entry.bytes)
                 throw Damage(fmt::format("the file has {} bytes, but had {} when it was indexed",
                                          file.size(), entry.bytes),
                              "trireme data index, if the change was meant");
               limits_.require_memory(file.size());
               const auto room = record.room(sizeof entry.label + file.size());
               std::memcpy(room.data(), &entry.label, sizeof entry.label);
               file.read(0, room.subspan(sizeof entry.label));
               record.fields.push_back(
                   {.name = "image", .bytes = room.subspan(sizeof entry.label), .encoded = true});
               record.fields.push_back({.name = "label",
                                        .bytes = room.first(sizeof entry.label),
                                        .dtype = plan::DType::int64});
             });
}

std::string ImageFilesReader::place(int64_t index) const {
  return fmt::format("{}, record {}", path_of(entry_of(index)), index);
}

std::optional<int64_t> ImageFilesReader::label(int64_t index) const {
  return entry_of(index).label;
}

int64_t ImageFilesReader::stamp(int64_t index) const {
  return time_of_file(path_of(entry_of(index)));
}

bool is_image_name(std::string_view name) {
  constexpr std::array<std::string_view, 4> kEnds{".jpg", ".jpeg", ".png", ".webp"};
  std::string small(name.substr(name.size() - std::min<size_t>(name.size(), 5)));
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return small.ends_with(end); });
}

void add_image(IndexContent& content, const fs::path& base, const std::string& name,
               int64_t label) {
  const fs::path path = base / name;
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode)) {
    std::error_code error;
    const fs::path target = fs::canonical(path, error);
    if (!error && !target.string().starts_with((base / "").string()))
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("{} is a link to {}, outside of the data's folder", path.string(),
                              target.string()),
                  "a copy of the file, or its folder as the data's path");
    if (::stat(path.c_str(), &status) != 0) status.st_mode = 0;
  }
  if (!S_ISREG(status.st_mode))
    throw Error(ErrorCode::not_found, "data",
                fmt::format("{} is not there, or no file: {}", path.string(),
                            std::generic_category().message(errno)),
                "correct its name, or take it out");
  add_name(content, name, label, static_cast<uint64_t>(status.st_size));
  if (status.st_size == 0)
    content.damage_last(path.string(),
                        Damage("the file is empty", "fetching the file again, or taking it out"));
}

void add_name(IndexContent& content, const std::string& name, int64_t label, uint64_t bytes) {
  content.add({.offset = content.names.size(),
               .bytes = bytes,
               .label = label,
               .extra = static_cast<uint32_t>(name.size())});
  content.names += name;
}

void check_damaged_images(const Index& index, const fs::path& base) {
  for (const auto& [number, damage] : index.damaged()) {
    const Entry entry = index.entry(number);
    const fs::path path = base / index.names().substr(entry.offset, entry.extra);
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
      throw Damage(fmt::format("{} was mended", path.string()));
  }
}

}  // namespace trireme::records
