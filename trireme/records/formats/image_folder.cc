// Image folders: each folder in the data's folder is a class and has its images.
#include <fmt/format.h>
#include <sys/stat.h>
#include <trireme/records/formats.h>
#include <algorithm>
#include "image_files.h"

namespace trireme::records {
namespace {

namespace fs = std::filesystem;

int64_t time_of_folder(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0)
    throw Damage(fmt::format("the folder {} went away", folder.string()));
  return status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
}

std::vector<std::string> sorted_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (std::string name = entry->path().filename(); !name.starts_with('.'))
      names.push_back(std::move(name));
  if (error)
    throw Error(
        ErrorCode::io, "data",
        fmt::format("the folder '{}' cannot be listed: {}", folder.string(), error.message()),
        "check its permissions");
  std::ranges::sort(names);
  return names;
}

class FolderScan {
 public:
  explicit FolderScan(fs::path base) : base_(std::move(base)) {}

  IndexContent run() {
    std::vector<std::string> classes;
    for (const std::string& name : sorted_names(base_)) {
      if (!fs::is_directory(base_ / name)) continue;
      const size_t before = content_.entries.size();
      add_folder(name, static_cast<int64_t>(classes.size()), 0);
      if (content_.entries.size() == before)
        throw Error(ErrorCode::invalid_argument, "data",
                    fmt::format("the folder '{}' of a class has no image (jpg, jpeg, png, webp)",
                                (base_ / name).string()),
                    "images, or a data folder without it");
      classes.push_back(name);
    }
    if (classes.empty())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("'{}' has no folders, but each class needs one", base_.string()),
                  "a folder that has one folder for each class");
    content_.facts["classes"] = classes;
    // A folder's time changes when a file is added to it or removed.
    content_.facts["_folders"] = folders_;
    return std::move(content_);
  }

 private:
  void add_folder(const std::string& folder, int64_t label, int depth) {
    constexpr int kDeepest = 32;  // A link to a folder above ends here.
    if (depth > kDeepest)
      throw Error(
          ErrorCode::invalid_argument, "data",
          fmt::format("'{}' is more than {} folders deep", (base_ / folder).string(), kDeepest),
          "a folder without links to itself");
    const fs::path canonical = fs::canonical(base_ / folder);
    if (!canonical.string().starts_with((base_ / "").string()))
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("'{}' is a link to {}, outside of the data's folder",
                              (base_ / folder).string(), canonical.string()),
                  "a folder in place of the link");
    folders_[folder] = time_of_folder(base_ / folder);
    for (const std::string& name : sorted_names(base_ / folder)) {
      const std::string below = folder + "/" + name;
      if (is_image_name(name))
        add_image(content_, base_, below, label);
      else if (fs::is_directory(base_ / below))
        add_folder(below, label, depth + 1);
    }
  }

  fs::path base_;
  IndexContent content_;
  Json folders_ = Json::object();
};

void check_folders(const fs::path& base, const Index& index) {
  check_damaged_images(index, base);
  std::vector<std::string> classes;
  for (std::string& name : sorted_names(base))
    if (fs::is_directory(base / name)) classes.push_back(std::move(name));
  bool has_other_times = classes != index.facts().at("classes").get<std::vector<std::string>>();
  for (const auto& [name, time] : index.facts().at("_folders").items())
    has_other_times = has_other_times || time_of_folder(base / name) != time.get<int64_t>();
  if (!has_other_times) return;
  // A folder that was copied has another time, so the names decide.
  const IndexContent now = FolderScan(base).run();
  if (now.names == index.names() && now.entries.size() == index.entries().size()) return;
  throw Damage(fmt::format("the images in '{}' became {}, from {},", base.string(),
                           now.entries.size(), index.entries().size()));
}

}  // namespace

SharedReader open_image_folder(const OpenOptions& options) {
  std::error_code error;
  const fs::path base = fs::canonical(options.path, error);
  if (error || !fs::is_directory(base))
    throw Error(error ? ErrorCode::not_found : ErrorCode::invalid_argument, "data",
                fmt::format("'{}' is not a folder", options.path),
                "a folder that has one folder for each class");
  const DataFiles files{.base = base, .names = {}, .given = base};
  IndexRequest request = request_for(options, "image_folder", files);
  request.identities = [] { return std::vector<FileIdentity>(); };
  request.make = [&] {
    return with_place([&] { return base.string(); }, [&] { return FolderScan(base).run(); });
  };
  request.check = [&](const Index& index) { check_folders(base, index); };
  return std::make_shared<ImageFilesReader>(base, open_index(request), options.unpack_limits());
}

}  // namespace trireme::records
