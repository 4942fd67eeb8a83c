// Clicks, for models with embeddings of categories.
#pragma once
#include <trireme/data/click_table.h>
#include <trireme/data/source.h>
#include <trireme/data/source_makers.h>

namespace trireme {

// Data is float [13], target int64 (1: clicked), and the named tensor "categories" int64 [26]: the
// categories as they are in the file, below 2^32.
class ClickSource : public Source {
 public:
  // Several sources may hold the same table.
  explicit ClickSource(std::shared_ptr<const data::ClickTable> table) : table_(std::move(table)) {}
  int64_t size() const override { return table_->count; }
  Example get(const Draw& draw) const override;
  Example get_batch(const Draws& draws) const override;

 private:
  std::shared_ptr<const data::ClickTable> table_;
};

namespace data {
Sources click_sources(const Dataset& data);  // For data.name: criteo.
}  // namespace data

}  // namespace trireme
