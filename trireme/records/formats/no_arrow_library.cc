// The twin of arrow_library.cc in a build without Apache Arrow.
#include <trireme/base/error.h>

#include "arrow_library.h"

namespace trireme::records {

const ArrowPlugin& arrow_library() {
  throw Error(ErrorCode::unsupported, "data",
              "data in Parquet and Arrow files needs Apache Arrow, and this Trireme was built "
              "without it",
              "scripts/setup arrow (pip install pyarrow), or ARROW_DIR: the folder of an Arrow "
              "that has include/, and build again");
}

}  // namespace trireme::records
