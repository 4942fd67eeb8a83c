// The library that reads Parquet and Arrow files. It is loaded at the first use, because Apache
// Arrow takes 60 MB of memory for code that only such data sets need.
#pragma once
#include <trireme/records/arrow/plugin.h>

namespace trireme::records {

// Any thread. The library stays loaded. Throws Error(unsupported) saying what is missing: this
// Trireme was built without it, or the library or the Arrow below it is not there.
const ArrowPlugin& arrow_library();

}  // namespace trireme::records
