// The fields of records whose files do not state them.
#pragma once
#include <trireme/records/record.h>
#include <cstdint>
#include <vector>

namespace trireme::records {

enum class SeenIn { all, any };

// Reads some of the first `count` records of a reader, at least 1, and gives the fields that all
// or any of them have, in the order in which they come. A shape that differs is not stated.
// Records that cannot be read do not count; if none can, it throws what the first one did.
std::vector<FieldSpec> seen_fields(const Reader& reader, int64_t count, SeenIn in);

}  // namespace trireme::records
