#include <fmt/format.h>

#include <trireme/data/kinds/content_digest.h>
#include <trireme/data/kinds/held_out.h>
#include <trireme/data/kinds/image_set.h>
#include <utility>

namespace trireme::data {
namespace {

// The files of data.name: idx have the same one as records (records/formats/idx.cc).
std::string digest_of_images(const ImageTable& table) {
  checkpoint::Digest digest;
  add_values(digest, fmt::format("{} images of {} x {} x {}, up to {}\n", table.count,
                                 table.channels, table.height, table.width, table.scale));
  add_values(digest, table.pixels);
  add_values(digest, table.labels);
  return digest.text();
}

}  // namespace

std::optional<int64_t> classes_of(const DataOptions& options) {
  return options.classes > 0 ? std::optional(options.classes) : std::nullopt;
}

Dataset dataset_of(ImageTable train, ImageTable test, const DataOptions& options) {
  Dataset data;
  data.content = digest_of_images(train);
  if (test.count > 0) data.test_content = digest_of_images(test);
  if (test.count == 0) hold_out(options, train, test, data);
  data.train_samples = train.count;
  data.test_samples = test.count;
  data.input = {{train.channels, train.height, train.width}, train.classes};
  data.samples = ImageParts{std::make_shared<const ImageTable>(std::move(train)),
                            std::make_shared<const ImageTable>(std::move(test))};
  require_training_samples(data);
  return data;
}

}  // namespace trireme::data
