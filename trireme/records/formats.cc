#include <trireme/records/formats.h>

namespace trireme::records {

// A new format has its row here.
const std::vector<Format>& formats() {
  static const std::vector<Format> all{
      {.name = "image_folder",
       .about = "a folder of images for each class",
       .path = "the folder that has the folders of the classes",
       .open = open_image_folder},
      {.name = "image_list",
       .about = "a text with the path and the label of an image in each line",
       .path = "the text; its paths are relative to its folder",
       .open = open_image_list},
      {.name = "cifar",
       .about = "CIFAR-10 and CIFAR-100 in binary",
       .path = "the folder of data_batch_1.bin or train.bin, or the files",
       .options = {"part"},
       .open = open_cifar},
      {.name = "webdataset",
       .about = "tar files, in which files that differ only in their extension are a record",
       .path = "tar files, plain, gzip or zstd",
       .ends = {".tar", ".tar.gz", ".tgz", ".tar.zst"},
       .open = open_webdataset},
      {.name = "tfrecord",
       .about = "TensorFlow's records, each a tf.train.Example",
       .path = "TFRecord files, plain, gzip or zstd",
       .ends = {".tfrecord", ".tfrecords", ".tfrecord.gz", ".tfrecords.gz", ".tfrecord.zst"},
       .open = open_tfrecord},
      {.name = "csv",
       .about = "rows of cells, as in RFC 4180",
       .path = "CSV files, plain, gzip or zstd",
       .options = {"delimiter", "header", "columns", "label"},
       .ends = {".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".tsv.zst"},
       .open = open_csv},
      {.name = "jsonl",
       .about = "a flat JSON object in each line",
       .path = "files of JSON lines, plain, gzip or zstd",
       .options = {"columns", "label"},
       .ends = {".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson"},
       .open = open_jsonl},
      {.name = "lines",
       .about = "a text, of which each line is a record",
       .path = "text files, plain, gzip or zstd",
       .ends = {".txt", ".txt.gz", ".txt.zst"},
       .open = open_lines},
      {.name = "npy",
       .about = "NumPy's arrays, of which a record is a part along the first dimension",
       .path = "a .npz file, or .npy files, each of which is a field",
       .options = {"label"},
       .ends = {".npy", ".npz"},
       .open = open_npy},
      {.name = "tokens",
       .about = "numbers of tokens in the files of llm.c and Megatron, or alone",
       .path = "files .bin, with .idx files beside them for Megatron's",
       .options = {"dtype", "block", "separator"},
       .ends = {".idx"},
       .open = open_tokens},
  };
  return all;
}

}  // namespace trireme::records
