// The way of most formats from options to a reader: the files, their index, the reader.
#pragma once
#include <trireme/records/damage.h>
#include <trireme/records/indexed_reader.h>
#include <trireme/records/open.h>
#include <numeric>

namespace trireme::records {

struct IndexedFiles {
  std::shared_ptr<const Shards> shards;
  std::shared_ptr<const Index> index;
};

// The wish for an index as the options have it. The caller adds what finds the records. `files`
// must live as long.
inline IndexRequest request_for(const OpenOptions& options, std::string_view format,
                                const DataFiles& files, Json index_options = Json::object()) {
  return {.format = std::string(format),
          .files = files,
          .options = std::move(index_options),
          .folder = options.index_dir,
          .make_anew = options.make_index_anew,
          .keeps_damaged = options.keeps_damaged,
          .remedy_of_damage = options.remedy_of_damage};
}

// Finds one file's records. Throws Damage whose text begins with the place in the file; if the
// code is corrupt, the file has no more records that can be read.
using ScanFile = std::function<void(uint32_t file, const Shards& shards, IndexContent& content)>;

// Opens the index of the shards, or makes it by scanning each file.
// `finish` may add to the facts when all files are scanned.
inline IndexedFiles index_files(const OpenOptions& options, std::string_view format,
                                std::shared_ptr<Shards> shards, Json index_options,
                                const ScanFile& scan,
                                const std::function<void(IndexContent&)>& finish = {}) {
  IndexRequest request = request_for(options, format, shards->files(), std::move(index_options));
  IndexContent content;
  const auto scan_file = [&](size_t file) {
    const auto number = static_cast<uint32_t>(file);
    with_place([&] { return shards->path(file).string(); },
               [&] {
                 try {
                   content.begin_file(shards->packed_bytes(file), shards->limits());
                   scan(number, *shards, content);
                 } catch (const Damage& damage) {
                   if (damage.code != ErrorCode::corrupt) throw;
                   content.add_damaged({.file = number}, shards->path(file).string(), damage);
                 }
               });
  };
  request.identities = [&] {
    if (!shards->is_remote()) return shards->identities();
    // Each file is fetched once, and may go before the last one has come.
    std::vector<size_t> all(shards->count());
    std::iota(all.begin(), all.end(), 0);
    shards->files().remote->ask_for_changes();
    shards->announce(all);
    std::vector<FileIdentity> identities;
    for (const size_t file : all) {
      identities.push_back(shards->identity(file));
      scan_file(file);
      shards->release(file);
    }
    return identities;
  };
  request.make = [&] {
    for (size_t file = 0; file < shards->count() && !shards->is_remote(); ++file) scan_file(file);
    if (finish) finish(content);
    return std::move(content);
  };
  auto index = open_index(request);
  shards->expect(index->files());
  return {std::move(shards), std::move(index)};
}

// The options of an index that has the lengths of a list, and of one without.
inline Json options_of_lengths(const OpenOptions& options) {
  return options.length_of.empty() ? Json::object() : Json{{kLengthOf, options.length_of}};
}

inline std::shared_ptr<Shards> shards_of(const OpenOptions& options, std::string_view format) {
  return std::make_shared<Shards>(files_of(options, find_format(format).ends),
                                  options.unpack_limits(), options.memory_of_blocks());
}

}  // namespace trireme::records
