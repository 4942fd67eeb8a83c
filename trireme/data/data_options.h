// The data set that a configuration names. No torch.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/config/rows.h>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

struct DataOptions {
  // digits, idx, text, criteo, a format of records (records/open.h), or one that was registered
  std::string name = "digits";
  // One file or folder. For digits and criteo, empty means the one that ships with Trireme.
  std::string path;
  std::string images, labels, test_images, test_labels;  // idx
  std::string tokens = "characters";                     // text: characters, bytes
  int64_t block = 128;                                   // text: the number of tokens in a sample.
  int64_t classes = -1;                                  // -1: taken from the data.
  int64_t split_seed = 20260101;  // The seed of the held-out part; independent of train.seed.
  // The memory of the input of a host (data/input_memory.h); -1: a quarter of what is free.
  int64_t memory_bytes = -1;
  double test_fraction = 0.2;  // Used if the data has no test part of its own.

  // Formats of records.
  int64_t max_ratio = 250;             // The most bytes that a compressed byte may become.
  std::string test_path;               // The test part; empty: a part is held out.
  std::string stages;                  // See pipeline/stage.h.
  std::string test_stages;             // Empty: `stages` without the random ones.
  std::string cache = "stages";        // stages, auto: see run/cache_choice.h.
  std::string inputs, target;          // Names of fields; empty: by the rules of FieldChoice.
  std::string on_bad_record = "stop";  // stop, skip
  int64_t bad_records = 100;           // The most of a part that a process skips.
  // -1: of cache(memory) three quarters of memory_bytes, of cache(disk) a quarter of the disk's
  // free space.
  int64_t cache_bytes = -1;
  std::string cache_dir;        // Empty: a folder of the user's.
  std::string download_dir;     // Empty: a folder of the user's.
  int64_t download_bytes = -1;  // -1: half of the disk space that is free or taken by it.
  Milliseconds download_timeout{30'000};
  int download_tries = 5;
  std::string delimiter;   // csv
  bool header = true;      // csv
  int64_t skip_lines = 0;  // csv
  std::string comment;     // csv
  std::string token_type;  // tokens: the type in files without a header.
  int64_t separator = -1;  // tokens: begins each document; -1: none.

  // Several data sets: JSON as kinds/mixture_options.h reads it.
  std::string sources, weights_at;
  std::string when_exhausted = "repeat";  // stop, repeat, renormalise
  int64_t epoch_samples = -1;             // -1: as many as the sources have.

  std::string service = "none";  // none, host, or addresses (service/addresses.h).
  Milliseconds service_timeout{10'000};
  int64_t service_bytes = -1;   // The samples that a server keeps; -1: an eighth of free memory.
  int64_t service_threads = 0;  // For the server of this host; 0: one for each core.
};
config::Rows rows_of(const DataOptions*);

// The names of the data sets that come with Trireme (data/data_kinds.h), and of those that were
// registered (run/training.h). Any thread.
std::vector<std::string> data_sets();

// Throws Error(invalid_argument) that names the option.
void check(const DataOptions& options);

// Whether damaged records are left out.
bool skips_bad_records(const DataOptions& options);
// Every option that names files.
std::array<const std::string*, 6> paths_of(const DataOptions& options);

}  // namespace trireme::data
