// Several data sets of records whose fields stand beside each other: data.name=zip. No torch.
#pragma once
#include <trireme/data/data_kinds.h>
#include <trireme/records/record.h>
#include <memory>
#include <string>
#include <vector>

namespace trireme::data {

// A reader with the name of its data set.
struct NamedReader {
  std::string name;
  std::shared_ptr<const records::Reader> reader;
};

// Record i has the fields of record i of each reader. Throws Error(invalid_argument) naming a
// source that has another number of records, or a field that another one has too.
std::shared_ptr<const records::Reader> zip_readers(std::vector<NamedReader> readers);

DataKind zip_kind();

}  // namespace trireme::data
