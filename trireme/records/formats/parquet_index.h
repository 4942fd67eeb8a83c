// The parts of Parquet files on a server that an index keeps, so that a run needs no file before
// it reads rows of it: those that name row groups and columns, and the column of the labels.
#pragma once
#include <trireme/records/open.h>
#include <trireme/records/shards.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::records {

class Index;

// Opens the index of the footers, or makes it: then each file is fetched once, and may go before
// the last one has come. Throws Error naming the file.
std::shared_ptr<const Index> index_of_footers(const OpenOptions& options,
                                              const std::shared_ptr<Shards>& files);
// Fills `bytes` from `offset` of the file. Returns false if that part of it is not kept. Throws
// Damage if the index is not one of footers.
bool read_kept(const Index& footers, size_t file, uint64_t offset, std::span<std::byte> bytes);

// Reads the labels of a file.
using ReadLabels = std::function<std::vector<int64_t>(size_t file)>;
// The labels of all files, in their order, which the index for this column has. If there is none
// for files with these identities, it is made with `read`, which is called for one file after the
// other. Throws Error.
std::vector<int64_t> kept_labels(const OpenOptions& options, const std::shared_ptr<Shards>& files,
                                 std::span<const FileIdentity> identities,
                                 const std::string& column, const ReadLabels& read);

}  // namespace trireme::records
