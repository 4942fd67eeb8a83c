#include <ATen/core/Tensor.h>

#include <trireme/config/registry.h>
#include <trireme/data/click_source.h>
#include <trireme/data/kinds/image_set.h>
#include <trireme/data/source_makers.h>
#include <trireme/data/text_source.h>
#include <utility>

namespace trireme::data {
namespace {

// Also for new kinds whose reader returns dataset_of() of images.
Sources image_sources(const Dataset& data) {
  const auto& parts = std::any_cast<const ImageParts&>(data.samples);
  Sources sources{std::make_shared<ImageSource>(parts.train), nullptr};
  if (data.test_samples > 0) sources.test = std::make_shared<ImageSource>(parts.test);
  return sources;
}

config::Registry<SourceMaker>& source_makers() {
  static config::Registry<SourceMaker> makers("data set", {{"digits", image_sources},
                                                           {"idx", image_sources},
                                                           {"text", text_sources},
                                                           {"criteo", click_sources}});
  return makers;
}

}  // namespace

Sources make_sources(const std::string& name, const Dataset& data) {
  return source_makers().find(name)(data);
}

void add_source_maker(const std::string& name, SourceMaker maker) {
  source_makers().add(name, std::move(maker));
}

}  // namespace trireme::data
