// The bytes of a record in the files of a format.
#pragma once
#include <trireme/records/record.h>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::records {

// They append the bytes of a record to `bytes`. `number` is that of the record in its reader. They
// throw Damage if the format cannot hold the record as it is.
// Members of a tar file. `last_key` has the key of the record before, or nothing.
void append_tar(const Record& record, int64_t number, std::string& last_key, std::string& bytes);
void append_tfrecord(const Record& record, std::string& bytes);

// The end of a tar file.
std::string end_of_tar();
// The header of an array in a file of NumPy's. Throws Damage for a type that NumPy does not have.
std::string npy_header(plan::DType dtype, std::span<const int64_t> shape);

}  // namespace trireme::records
