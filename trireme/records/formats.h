// The functions by which the formats are opened. The table of formats.cc has them.
#pragma once
#include <trireme/records/open.h>

namespace trireme::records {

using SharedReader = std::shared_ptr<const Reader>;

SharedReader open_image_folder(const OpenOptions& options);
SharedReader open_image_list(const OpenOptions& options);
SharedReader open_cifar(const OpenOptions& options);
SharedReader open_idx(const OpenOptions& options);
SharedReader open_webdataset(const OpenOptions& options);
SharedReader open_tfrecord(const OpenOptions& options);
SharedReader open_csv(const OpenOptions& options);
SharedReader open_jsonl(const OpenOptions& options);
SharedReader open_npy(const OpenOptions& options);
SharedReader open_tokens(const OpenOptions& options);
SharedReader open_text(const OpenOptions& options);
SharedReader open_lmdb(const OpenOptions& options);
SharedReader open_lines(const OpenOptions& options);
SharedReader open_parquet(const OpenOptions& options);
SharedReader open_arrow(const OpenOptions& options);

}  // namespace trireme::records
