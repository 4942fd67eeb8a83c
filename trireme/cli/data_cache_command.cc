// `trireme data cache`: the files of cache(disk), without LibTorch.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/cli/data_files_commands.h>
#include <trireme/data/pipeline/cache_folder.h>
#include <trireme/records/index.h>
#include <filesystem>
#include <system_error>

namespace trireme::cli {
namespace {

struct CacheArguments {
  std::string folder;
  bool clear = false, json = false;
};

Json json_of_caches(const std::vector<data::CacheFile>& files) {
  Json list = Json::array();
  for (const data::CacheFile& file : files)
    list.push_back({{"path", file.path.string()},
                    {"bytes", file.bytes},
                    {"samples", file.samples},
                    {"stored", file.stored},
                    {"used_at", file.used_at},
                    {"in_use", file.is_in_use}});
  return list;
}

void print_caches(const std::vector<data::CacheFile>& files) {
  int64_t bytes = 0;
  for (const data::CacheFile& file : files) {
    bytes += file.bytes;
    fmt::print("{:>10}  {} of {} samples  {:%Y-%m-%d %H:%M}  {}{}\n", format_bytes(file.bytes),
               file.stored, file.samples, fmt::localtime(static_cast<std::time_t>(file.used_at)),
               file.path.string(), file.is_in_use ? "  in use" : "");
  }
  fmt::print("{:>10}  in {} caches\n", format_bytes(bytes), files.size());
}

int show_or_clear(const CacheArguments& arguments) {
  const std::filesystem::path folder = records::index_folder(arguments.folder);
  std::vector<data::CacheFile> files;
  int64_t freed = 0;
  std::error_code unknown;
  // A folder that nobody has made has no caches.
  if (!arguments.folder.empty() || std::filesystem::exists(folder, unknown)) {
    data::CacheFolder caches(folder, /*make=*/false);
    if (arguments.clear) freed = caches.clear();
    files = caches.files();
  }
  if (arguments.json) {
    Json all{{"folder", folder.string()}, {"caches", json_of_caches(files)}};
    if (arguments.clear) all["freed_bytes"] = freed;
    fmt::print("{}\n", all.dump(2));
    return kExitOk;
  }
  if (arguments.clear) fmt::print("{} freed\n", format_bytes(freed));
  print_caches(files);
  return kExitOk;
}

}  // namespace

void add_data_cache(Command data) {
  auto arguments = std::make_shared<CacheArguments>();
  Command command = data.subcommand(
      "cache", "Show the files in which cache(disk) keeps samples, or remove them");
  command.option("--cache-dir", arguments->folder,
                 "The folder (data.cache_dir; default: trireme in the user's cache)");
  command.flag("--clear", arguments->clear, "Remove the caches that no process uses");
  command.flag("--json", arguments->json, "Print JSON");
  command.examples({"trireme data cache", "trireme data cache --clear"});
  command.action([arguments] { return show_or_clear(*arguments); });
}

}  // namespace trireme::cli
