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
                               .meaning = "text: tokens in a sample.",
                               .range = config::at_least(1),
                               .only_for = only_kinds_with("data.block")}),
       config::row(&O::images, {.name = "data.images",
                                .meaning = "idx: file of the training images, plain or gzip.",
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
                                 .meaning = "Number of classes: a label outside 0..classes-1 is "
                                            "an error; auto: from the labels.",
                                 .range = config::at_least(1),
                                 .automatic = -1,
                                 .only_for = only_kinds_with("data.classes")}),
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

}  // namespace trireme::data
