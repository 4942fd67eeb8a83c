// libarchive's own loop over a tar file, whose records are a member .bin and a member .cls behind
// it: the content of the members .bin.
//   tar_loop PATH SECONDS
#include <archive.h>
#include <archive_entry.h>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "record_loop.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::vector<char> content;
  bench::run_epochs(std::strtod(argv[2], nullptr), [&](bench::BatchMemory& memory, int64_t) {
    archive* file = archive_read_new();
    archive_read_support_format_tar(file);
    if (archive_read_open_filename(file, argv[1], 1 << 20) != ARCHIVE_OK) {
      std::fprintf(stderr, "tar_loop: %s\n", archive_error_string(file));
      std::exit(1);
    }
    archive_entry* entry = nullptr;
    while (archive_read_next_header(file, &entry) == ARCHIVE_OK) {
      if (!std::string_view(archive_entry_pathname(entry)).ends_with(".bin")) continue;
      content.resize(static_cast<size_t>(archive_entry_size(entry)));
      if (archive_read_data(file, content.data(), content.size()) !=
          static_cast<la_ssize_t>(content.size()))
        std::exit(1);
      memory.put(content.data(), content.size());
      memory.end_record();
    }
    archive_read_free(file);
  });
  return 0;
}
