// Sources one behind the other, and a source whose samples are other numbers of another one.
#pragma once
#include <trireme/data/many_sources.h>
#include <trireme/data/wrapped_source.h>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trireme {

// All samples of the first source, then those of the second one, and so on.
class ChainedSource : public ManySources {
 public:
  explicit ChainedSource(std::vector<std::shared_ptr<const Source>> sources);
  int64_t size() const override { return firsts_.back(); }
  // Its samples are mostly asked for in their order: of one source after the other.
  int64_t reads_ahead() const override;

 private:
  std::pair<const Source*, Draw> find(const Draw& draw) const override;
  std::vector<int64_t> firsts_;  // [source]: its first sample; and the number of all.
};

// Sample i is sample `number(i)` of `source`, with random numbers of its own.
class RenumberedSource : public WrappedSource {
 public:
  RenumberedSource(std::shared_ptr<const Source> source, int64_t samples,
                   std::function<int64_t(int64_t)> number)
      : WrappedSource(std::move(source)), samples_(samples), number_(std::move(number)) {}
  int64_t size() const override { return samples_; }
  Example get(const Draw& draw) const override { return source_->get(renumbered(draw)); }
  std::optional<Example> get_if_kept(const Draw& draw) const override {
    return source_->get_if_kept(renumbered(draw));
  }
  Example get_batch(const Draws& draws) const override {
    return source_->get_batch(renumbered(draws));
  }
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override {
    return source_->get_kept(renumbered(draws), left_out);
  }
  std::optional<SampleSize> size_of(const Draw& draw) const override {
    return source_->size_of(renumbered(draw));
  }
  void announce(const Draws& draws) const override { source_->announce(renumbered(draws)); }
  void release(const Draws& draws) const override { source_->release(renumbered(draws)); }

 private:
  Draw renumbered(const Draw& draw) const { return {at(draw.index), draw.epoch, draw.seed}; }
  Draws renumbered(const Draws& draws) const;
  // Throws Error(invalid_argument) for a sample outside 0..size()-1.
  int64_t at(int64_t index) const;

  int64_t samples_;
  std::function<int64_t(int64_t)> number_;
};

}  // namespace trireme
