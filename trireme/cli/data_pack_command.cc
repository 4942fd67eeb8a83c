// `trireme data pack`: writes the records of a data set into files that are quick to read.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/units.h>
#include <trireme/cli/data_arguments.h>
#include <trireme/cli/data_files_commands.h>
#include <trireme/records/pack/pack.h>

namespace trireme::cli {
namespace {

struct PackArguments {
  DataArguments data;
  std::string to, output, shard_bytes = "256MB", compress, field;
  std::optional<int> shuffle;

  records::PackOptions options() const {
    records::PackOptions pack{
        .to = to, .output = output, .shard_bytes = parse_bytes(shard_bytes), .field = field};
    if (shuffle) pack.shuffle = static_cast<uint64_t>(*shuffle);
    if (compress == "zstd")
      pack.packing = records::Packing::zstd;
    else if (compress == "gzip")
      pack.packing = records::Packing::gzip;
    else if (!compress.empty())
      throw Error(ErrorCode::invalid_argument, "cli", fmt::format("--compress is '{}'", compress),
                  "zstd or gzip");
    return pack;
  }
};

int pack(const PackArguments& arguments) {
  const records::PackOptions options = arguments.options();
  records::check_pack(options);  // To open a data set may need its index, which takes time.
  std::vector<records::PackPart> parts;
  for (const OpenedPart& part : arguments.data.parts()) parts.push_back({part.name, part.reader});
  const auto packed = records::pack_records(parts, options);
  if (arguments.data.json) {
    Json json = Json::array();
    for (const records::PackedPart& part : packed) json.push_back(part.to_json());
    fmt::print("{}\n", json.dump(2));
    return kExitOk;
  }
  for (const records::PackedPart& part : packed)
    fmt::print("{}: {} records in {} file{} of {}, {}\n", part.folder.string(), part.records,
               part.files.size(), part.files.size() == 1 ? "" : "s", options.to,
               format_bytes(part.bytes));
  return kExitOk;
}

}  // namespace

void add_data_pack(Command data) {
  auto arguments = std::make_shared<PackArguments>();
  Command command = data.subcommand(
      "pack", "Write the records of a data set's files into new files that are quick to read");
  arguments->data.add_to(command);
  command.required(
      "--to", arguments->to,
      fmt::format("The format of the new files: {}", fmt::join(records::kPackTargets, ", ")));
  command.required("--output", arguments->output,
                   "The new folder; for a configuration it gets the folders train and test");
  command.option("--shard-bytes", arguments->shard_bytes,
                 "webdataset, tfrecord: the most bytes in a file before it is compressed (default "
                 "256MB)");
  command.option(
      "--field", arguments->field,
      "tokens: the field that has them (default: tokens, or the only list of whole numbers)");
  command.option("--shuffle", arguments->shuffle,
                 "Write the records in a random order that this seed decides");
  command.option("--compress", arguments->compress,
                 "webdataset, tfrecord: zstd or gzip (default: none)");
  command.flag("--json", arguments->data.json, "Print JSON");
  command.examples({"trireme data pack photos/train --to webdataset --output shards --shuffle 1",
                    "trireme data pack job.yaml --to tfrecord --compress zstd --output packed",
                    "trireme data pack documents.jsonl.zst --to tokens --output documents"});
  command.action([arguments] { return pack(*arguments); });
}

}  // namespace trireme::cli
