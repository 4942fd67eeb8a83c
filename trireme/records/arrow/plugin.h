// The functions of libtrireme_arrow.so, which reads Parquet and Arrow files with Apache Arrow.
// Only plain values pass between it and the programme that opens it, and no exception does. So the
// programme links nothing of Arrow, and no symbol of Arrow is seen outside the library.
#pragma once
#include <trireme/records/arrow/c_data.h>
#include <cstddef>
#include <cstdint>

namespace trireme::records {

// The bytes of a file: by a function that fills `to` and returns false if it cannot, or mapped.
struct ArrowSource {
  int64_t bytes = 0;
  void* file = nullptr;
  bool (*read)(void* file, int64_t offset, int64_t bytes, void* to) = nullptr;
  const void* map = nullptr;
};

enum class ArrowFailure : int {
  none,
  damaged,      // The file does not hold what it should.
  unsupported,  // The file is right, but this Arrow cannot read it.
  memory,       // More memory would be needed than was given.
  source        // The function of the source has failed.
};

struct ArrowReply {
  ArrowFailure failure = ArrowFailure::none;
  char text[512] = {};
};

enum class ArrowFormat : int { parquet, ipc };

// A group is a row group of Parquet, or a record batch. Any number of threads may use an open
// file. A source is used during the call alone, but a map must live as long as the groups that
// were read from it.
struct ArrowPlugin {
  uint32_t version;
  const char* arrow_version;
  // Reads what the file says about itself. Returns null if it fails.
  void* (*open)(const ArrowSource*, ArrowFormat, int64_t memory_bytes, ArrowReply*);
  void (*close)(void* file);
  // Valid as long as the file is open: a struct, whose members are the columns.
  const ArrowSchema* (*schema)(const void* file);
  int64_t (*groups)(const void* file);
  int64_t (*rows)(const void* file, int64_t group);
  // The bytes that the file states for these columns (numbers in ascending order) of a group,
  // unpacked; 0 if it states none.
  int64_t (*stated_bytes)(const void* file, int64_t group, const int* columns, int64_t count);
  // Reads columns of a group. Never allocates more than `memory_bytes`. Returns null if it fails.
  void* (*read)(const void* file, const ArrowSource*, int64_t group, const int* columns,
                int64_t count, int64_t memory_bytes, ArrowReply*);
  // The rows of a group that was read, in parts. Each is a struct of the columns.
  int64_t (*parts)(const void* group);
  const ArrowArray* (*part)(const void* group, int64_t part);
  int64_t (*held_bytes)(const void* group);  // Without those of a map.
  void (*drop)(void* group);
};

inline constexpr uint32_t kArrowPluginVersion = 1;

}  // namespace trireme::records

// The one symbol of the library.
extern "C" const trireme::records::ArrowPlugin* trireme_arrow_plugin();
