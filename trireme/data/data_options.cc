#include <trireme/config/row.h>
#include <trireme/data/data_kinds.h>
#include <trireme/data/data_options.h>

namespace trireme::data {

config::Rows rows_of(const DataOptions*) {
  using O = DataOptions;
  // A row keeps only a view of its meaning.
  static const std::string meaning_of_name = "The data set: " + about_kinds() + ".";
  static const std::string meaning_of_path = paths_of_kinds();
  return config::all_of<O>(
      {config::row(&O::name,
                   {.name = "data.name", .meaning = meaning_of_name, .choices = data_sets}),
       config::row(&O::path, {.name = "data.path", .meaning = meaning_of_path, .agreed = false}),
       config::row(&O::tokens, {.name = "data.tokens",
                                .meaning = "text: a token is a character that occurs in the text "
                                           "(UTF-8), or a byte (256 tokens).",
                                .choices = config::one_of({"characters", "bytes"}),
                                .only_for = only_kinds_with("data.tokens")}),
       config::row(&O::block, {.name = "data.block",
                               .meaning = "text, tokens: tokens in a sample.",
                               .range = config::at_least(1),
                               .only_for = only_kinds_with("data.block")}),
       config::row(&O::images,
                   {.name = "data.images",
                    .meaning = "idx: file of the training images, plain, gzip or zstd.",
                    .only_for = only_kinds_with("data.images"),
                    .agreed = false}),
       config::row(&O::labels, {.name = "data.labels",
                                .meaning = "idx: file of the training labels.",
                                .only_for = only_kinds_with("data.labels"),
                                .agreed = false}),
       config::row(
           &O::test_images,
           {.name = "data.test_images",
            .meaning =
                "idx: file of the test images; empty: a part of the training set is held out.",
            .only_for = only_kinds_with("data.test_images"),
            .agreed = false}),
       config::row(&O::test_labels, {.name = "data.test_labels",
                                     .meaning = "idx: file of the test labels.",
                                     .only_for = only_kinds_with("data.test_labels"),
                                     .agreed = false}),
       config::row(&O::classes, {.name = "data.classes",
                                 .meaning = "Number of classes: a label or token outside "
                                            "0..classes-1 is an error; auto: from the data.",
                                 .range = config::at_least(1),
                                 .automatic = -1,
                                 .only_for = only_kinds_with("data.classes")}),
       config::row(&O::test_path,
                   {.name = "data.test_path",
                    .meaning = "Files of the test part, as data.path; empty: a part of the "
                               "training set is held out.",
                    .only_for = only_kinds_with("data.test_path"),
                    .agreed = false}),
       config::row(
           &O::stages,
           {.name = "data.stages",
            .meaning = "What happens to a sample between its file and its batch: a list of "
                       "stages, or a text with a bar between them (docs/input.md).",
            .only_for = only_kinds_with("data.stages"),
            .joins = " | "}),
       config::row(&O::test_stages,
                   {.name = "data.test_stages",
                    .meaning = "The same for evaluations; empty: data.stages without the random "
                               "ones.",
                    .only_for = only_kinds_with("data.test_stages"),
                    .joins = " | "}),
       config::row(&O::cache,
                   {.name = "data.cache",
                    .meaning = "stages: samples are kept where data.stages has the stage cache, "
                               "if it has one; auto: where memory for it saves most, which a few "
                               "samples show before the run starts (docs/input.md).",
                    .choices = config::one_of({"stages", "auto"}),
                    .only_for = only_kinds_with("data.cache"),
                    .agreed = false}),
       config::row(&O::inputs,
                   {.name = "data.inputs",
                    .meaning = "The fields of a record that the model gets, with commas between "
                               "them; empty: an image, or else all numbers besides the target.",
                    .only_for = only_kinds_with("data.inputs")}),
       config::row(&O::target,
                   {.name = "data.target",
                    .meaning = "The field that is the target; empty: label, target, cls, class or "
                               "y, or else the last of several numbers.",
                    .only_for = only_kinds_with("data.target")}),
       config::row(&O::on_bad_record,
                   {.name = "data.on_bad_record",
                    .meaning = "stop: a record that cannot be read ends the run; skip: it is left "
                               "out, named and counted.",
                    .choices = config::one_of({"stop", "skip"}),
                    .only_for = only_kinds_with("data.on_bad_record")}),
       config::row(&O::bad_records,
                   {.name = "data.bad_records",
                    .meaning = "The most records of a part that a process leaves out because they "
                               "cannot be read.",
                    .range = config::at_least(1),
                    .only_for = only_kinds_with("data.bad_records")}),
       config::row(&O::max_ratio,
                   {.name = "data.max_ratio",
                    .meaning = "The most bytes that a byte of a compressed file may become, of "
                               "data or of its index, above 16 MiB; a file beyond it is refused.",
                    .range = config::at_least(1),
                    .only_for = only_kinds_with("data.max_ratio"),
                    .agreed = false}),
       config::row(&O::memory_bytes,
                   {.name = "data.memory_bytes",
                    .meaning = "The most memory of a host for its input: batches that are ready, "
                               "the stage cache, and unpacked files and row groups that are "
                               "kept; auto: a quarter of the memory that is free.",
                    .range = config::at_least(0),
                    .automatic = -1,
                    .agreed = false,
                    .kind = config::Kind::bytes}),
       config::row(&O::cache_bytes,
                   {.name = "data.cache_bytes",
                    .meaning = "The most bytes that the stages cache of both parts keep together "
                               "on a host; auto: three quarters of data.memory_bytes, or with "
                               "cache(disk) a quarter of the disk's free space.",
                    .range = config::at_least(0),
                    .automatic = -1,
                    .only_for = only_kinds_with("data.cache_bytes"),
                    .agreed = false,
                    .kind = config::Kind::bytes}),
       config::row(&O::cache_dir,
                   {.name = "data.cache_dir",
                    .meaning = "Folder for cache(disk); empty: trireme in the user's folder for "
                               "caches.",
                    .only_for = only_kinds_with("data.cache_dir"),
                    .agreed = false}),
       config::row(&O::download_dir,
                   {.name = "data.download_dir",
                    .meaning = "Folder for files that are fetched from http and https addresses, "
                               "for all processes of a host; empty: trireme/downloads in the "
                               "user's folder for caches.",
                    .only_for = only_kinds_with("data.download_dir"),
                    .agreed = false}),
       config::row(&O::download_bytes,
                   {.name = "data.download_bytes",
                    .meaning = "The most bytes that data.download_dir holds; auto: half of the "
                               "disk space that is free or taken by it.",
                    .range = config::at_least(1),
                    .automatic = -1,
                    .only_for = only_kinds_with("data.download_bytes"),
                    .agreed = false,
                    .kind = config::Kind::bytes}),
       config::row(&O::download_timeout,
                   {.name = "data.download_timeout",
                    .meaning = "A server that sends less than 1 KB a second for so long is asked "
                               "again.",
                    .only_for = only_kinds_with("data.download_timeout"),
                    .agreed = false}),
       config::row(&O::download_tries,
                   {.name = "data.download_tries",
                    .meaning = "So many requests in a row that bring nothing new of a file end "
                               "the run.",
                    .range = config::at_least(1),
                    .only_for = only_kinds_with("data.download_tries"),
                    .agreed = false}),
       config::row(&O::delimiter,
                   {.name = "data.delimiter",
                    .meaning = "csv: the character between two columns, or whitespace: any "
                               "number of spaces and tabs; empty: a comma, or a tab in .tsv "
                               "files.",
                    .only_for = only_kinds_with("data.delimiter")}),
       config::row(&O::header, {.name = "data.header",
                                .meaning = "csv: the first row of each file names the columns.",
                                .only_for = only_kinds_with("data.header")}),
       // The content of the data tells what these two decide, and earlier checkpoints lack them.
       config::row(&O::skip_lines,
                   {.name = "data.skip_lines",
                    .meaning = "csv: so many lines of each file, which stand in front of its "
                               "header or rows, are left out.",
                    .range = config::at_least(0),
                    .only_for = only_kinds_with("data.skip_lines"),
                    .agreed = false}),
       config::row(&O::comment,
                   {.name = "data.comment",
                    .meaning = "csv: lines that begin with this text, such as #, are no rows; "
                               "empty: there are none.",
                    .only_for = only_kinds_with("data.comment"),
                    .agreed = false}),
       config::row(&O::token_type,
                   {.name = "data.token_type",
                    .meaning = "tokens: the type of the numbers in files without a header: uint8, "
                               "uint16, uint32 or int32.",
                    .only_for = only_kinds_with("data.token_type")}),
       config::row(&O::separator,
                   {.name = "data.separator",
                    .meaning = "tokens: the token with which each document begins; auto: none.",
                    .range = config::at_least(0),
                    .automatic = -1,
                    .only_for = only_kinds_with("data.separator")}),
       config::row(&O::sources,
                   {.name = "data.sources",
                    .meaning = "mixture: the data sets. An entry has name and path, weight (1 "
                               "unless given), as (its name in messages), and any other key of "
                               "this section that it does not share (docs/input.md).",
                    .only_for = only_kinds_with("data.sources"),
                    .has_entries = true,
                    .agreed = false}),
       config::row(&O::weights_at,
                   {.name = "data.weights_at",
                    .meaning = "mixture: other weights from a position on. An entry has epoch, "
                               "sample and weights.",
                    .only_for = only_kinds_with("data.weights_at"),
                    .has_entries = true}),
       config::row(&O::when_exhausted,
                   {.name = "data.when_exhausted",
                    .meaning = "mixture: stop: an epoch ends with the first source that has no "
                               "more samples; repeat: the source begins anew; renormalise: the "
                               "others share its places.",
                    .choices = config::one_of({"stop", "repeat", "renormalise"}),
                    .only_for = only_kinds_with("data.when_exhausted")}),
       config::row(
           &O::epoch_samples,
           {.name = "data.epoch_samples",
            .meaning = "mixture: the samples of an epoch, with data.when_exhausted=repeat; "
                       "auto: as many as all sources have.",
            .range = config::at_least(1),
            .automatic = -1,
            .only_for = only_kinds_with("data.epoch_samples")}),
       config::row(&O::service,
                   {.name = "data.service",
                    .meaning = "Who makes the samples. none: each worker; host: a process for "
                               "all jobs of this user on a host; HOST:PORT[,HOST:PORT...]: "
                               "`trireme data serve` (docs/input.md).",
                    .only_for = only_kinds_with("data.service"),
                    .agreed = false}),
       config::row(&O::service_timeout,
                   {.name = "data.service_timeout",
                    .meaning = "The longest wait of a batch for the service; then the worker "
                               "makes it.",
                    .range = config::above(0),
                    .only_for = only_kinds_with("data.service_timeout"),
                    .agreed = false}),
       config::row(&O::service_bytes,
                   {.name = "data.service_bytes",
                    .meaning = "The most bytes of made samples that a server keeps; auto: an "
                               "eighth of the memory that is free.",
                    .range = config::at_least(0),
                    .automatic = -1,
                    .only_for = only_kinds_with("data.service_bytes"),
                    .agreed = false,
                    .kind = config::Kind::bytes}),
       config::row(&O::service_threads,
                   {.name = "data.service_threads",
                    .meaning = "Threads by which a server makes samples; auto: one for each core.",
                    .range = config::from_to(1, 256),
                    .automatic = 0,
                    .only_for = only_kinds_with("data.service_threads"),
                    .agreed = false}),
       config::row(&O::split_seed,
                   {.name = "data.split_seed",
                    .meaning = "Decides which samples are held out, independently of train.seed.",
                    .range = config::at_least(0),
                    .only_for = only_kinds_with("data.split_seed")}),
       config::row(&O::test_fraction,
                   {.name = "data.test_fraction",
                    .meaning = "Fraction of the samples that is held out for the test, if the "
                               "data has no test part of its own; text: its end.",
                    .range = config::from_below(0, 1)})});
}

bool skips_bad_records(const DataOptions& options) { return options.on_bad_record == "skip"; }

std::array<const std::string*, 6> paths_of(const DataOptions& options) {
  return {&options.path,   &options.test_path,   &options.images,
          &options.labels, &options.test_images, &options.test_labels};
}

}  // namespace trireme::data
