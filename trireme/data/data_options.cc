#include <trireme/base/error.h>
#include <trireme/config/names.h>
#include <trireme/config/row.h>
#include <trireme/data/data_options.h>

namespace trireme::data {
namespace {

config::Names& known_data_sets() {
  static config::Names names({"digits", "idx", "text"});
  return names;
}

}  // namespace

std::vector<std::string> data_sets() { return known_data_sets().all(); }
void add_data_set(const std::string& name) { known_data_sets().add(name); }

config::Rows rows_of(const DataOptions*) {
  using O = DataOptions;
  return config::all_of<O>(
      {config::row(&O::name, {.name = "data.name",
                              .meaning = "The data set: digits (ships with Trireme), idx (MNIST's "
                                         "file format) or text (any text file, for gpt).",
                              .choices = data_sets}),
       config::row(
           &O::path,
           {.name = "data.path",
            .meaning = "digits: its file; empty: the one that ships. idx: the folder that holds "
                       "the files under their usual names. text: the file, plain or gzip.",
            .agreed = false}),
       config::row(&O::tokens, {.name = "data.tokens",
                                .meaning = "text: a token is a character that occurs in the text "
                                           "(UTF-8), or a byte (256 tokens).",
                                .choices = config::one_of({"characters", "bytes"}),
                                .only_for = {"data.name", {"text"}}}),
       config::row(&O::block, {.name = "data.block",
                               .meaning = "text: tokens in a sample.",
                               .range = config::at_least(1),
                               .only_for = {"data.name", {"text"}}}),
       config::row(&O::images, {.name = "data.images",
                                .meaning = "idx: file of the training images, plain or gzip.",
                                .only_for = {"data.name", {"idx"}},
                                .agreed = false}),
       config::row(&O::labels, {.name = "data.labels",
                                .meaning = "idx: file of the training labels.",
                                .only_for = {"data.name", {"idx"}},
                                .agreed = false}),
       config::row(
           &O::test_images,
           {.name = "data.test_images",
            .meaning =
                "idx: file of the test images; empty: a part of the training set is held out.",
            .only_for = {"data.name", {"idx"}},
            .agreed = false}),
       config::row(&O::test_labels, {.name = "data.test_labels",
                                     .meaning = "idx: file of the test labels.",
                                     .only_for = {"data.name", {"idx"}},
                                     .agreed = false}),
       config::row(&O::classes, {.name = "data.classes",
                                 .meaning = "Number of classes: a label outside 0..classes-1 is "
                                            "an error; auto: from the labels.",
                                 .range = config::at_least(1),
                                 .automatic = -1,
                                 .only_for = {"data.name", {"digits", "idx"}}}),
       config::row(&O::split_seed,
                   {.name = "data.split_seed",
                    .meaning = "Decides which images are held out, independently of train.seed.",
                    .range = config::at_least(0),
                    .only_for = {"data.name", {"digits", "idx"}}}),
       config::row(&O::test_fraction,
                   {.name = "data.test_fraction",
                    .meaning = "Fraction of the samples that is held out for the test, if the "
                               "data has no test part of its own; text: its end.",
                    .range = config::from_below(0, 1)})});
}

void check(const DataOptions& options) {
  const auto refuse = [](const char* what, const char* remedy) {
    throw Error(ErrorCode::invalid_argument, "data", what, remedy);
  };
  if (options.name == "text" && options.path.empty())
    refuse("data.name is text, but data.path does not name its file", "data.path=FILE");
  if (options.name != "idx" || !options.path.empty()) return;
  if (options.images.empty() || options.labels.empty())
    refuse("data.name is idx, but data.images and data.labels do not name the two training files",
           "data.images=FILE and data.labels=FILE, or data.path=FOLDER that holds both");
  if (options.test_images.empty() != options.test_labels.empty())
    refuse(options.test_labels.empty()
               ? "data.test_images is given without the other file, data.test_labels"
               : "data.test_labels is given without the other file, data.test_images",
           "give both, or none");
}

}  // namespace trireme::data
