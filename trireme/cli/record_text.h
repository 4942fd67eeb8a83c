// Records as text and as JSON, for people and tests.
#pragma once
#include <trireme/base/json.h>
#include <trireme/records/record.h>
#include <string>

namespace trireme::cli {

// One entry for each field: the numbers, or the text, or the digest of what is neither.
Json json_of_record(const records::Record& record);
// A line for each field, with the beginning of its value.
std::string describe_record(const records::Record& record);
// A line for the form of a field that all records have.
std::string describe_field(const records::FieldSpec& field);

}  // namespace trireme::cli
