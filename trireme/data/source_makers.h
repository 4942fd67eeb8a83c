// The sources that train on the data sets of data/data_kinds.h.
#pragma once
#include <trireme/data/dataset.h>
#include <trireme/data/source.h>
#include <functional>
#include <memory>
#include <string>

namespace trireme::data {

struct Sources {
  std::shared_ptr<const Source> train, test;  // test may be null.
};
// Makes the sources of a data set that the kind of the same name has read.
using SourceMaker = std::function<Sources(const Dataset&)>;

// The samples of a mixture's sources as this process makes them, padded if a stage says so, in
// front of the stages that mix those of a batch.
Sources samples_of_mixture(const Dataset& data);

// Throws Error(invalid_argument) that lists the known names.
Sources make_sources(const std::string& name, const Dataset& data);
// Adds the maker for a kind that add_kind() has added. Throws Error(invalid_argument) if the name
// has a maker already.
void add_source_maker(const std::string& name, SourceMaker maker);

}  // namespace trireme::data
