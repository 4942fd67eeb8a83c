// What the data sets of images have in common. No torch.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <trireme/data/image_table.h>
#include <memory>
#include <optional>

namespace trireme::data {

// The samples of a Dataset of images.
struct ImageParts {
  std::shared_ptr<const ImageTable> train, test;
};

// Nothing for data.classes: auto.
std::optional<int64_t> classes_of(const DataOptions& options);

// If `test` has no images, data.split_seed draws data.test_fraction of `train` for it.
Dataset dataset_of(ImageTable train, ImageTable test, const DataOptions& options);

}  // namespace trireme::data
