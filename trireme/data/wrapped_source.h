// The base of the sources that change one thing of another source.
#pragma once
#include <trireme/data/source.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trireme {

// Asks `source_` for everything that a derived class does not do itself.
class WrappedSource : public Source {
 public:
  explicit WrappedSource(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  int64_t size() const override { return source_->size(); }
  Example get(const Draw& draw) const override { return source_->get(draw); }
  std::optional<Example> get_if_kept(const Draw& draw) const override {
    return source_->get_if_kept(draw);
  }
  Example get_batch(const Draws& draws) const override { return source_->get_batch(draws); }
  bool leaves_out() const override { return source_->leaves_out(); }
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    return source_->get_kept(draws, left_out);
  }
  std::optional<SampleSize> size_of(const Draw& draw) const override {
    return source_->size_of(draw);
  }
  bool mixes_batches() const override { return source_->mixes_batches(); }
  int64_t reads_ahead() const override { return source_->reads_ahead(); }
  void announce(const Draws& draws) const override { source_->announce(draws); }
  void release(const Draws& draws) const override { source_->release(draws); }
  std::vector<data::StageUse> stage_use() const override { return source_->stage_use(); }
  std::optional<data::CacheUse> cache_use() const override { return source_->cache_use(); }
  std::optional<data::CacheAdvice> cache_advice() const override {
    return source_->cache_advice();
  }
  std::vector<int64_t> bad_records() const override { return source_->bad_records(); }
  std::optional<data::ServedCounts> served() const override { return source_->served(); }

 protected:
  const std::shared_ptr<const Source> source_;
};

}  // namespace trireme
