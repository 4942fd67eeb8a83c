// The base of the sources that consist of several others: each sample is one of theirs.
#pragma once
#include <trireme/data/source.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace trireme {

// The samples of all sources must stack. A source may leave samples out, but not mix those of a
// batch.
class ManySources : public Source {
 public:
  // Throws Error that begins with `name`: invalid_argument if there is no source or one is null,
  // unsupported if one mixes batches.
  ManySources(std::vector<std::shared_ptr<const Source>> sources, const char* name);
  Example get(const Draw& draw) const override;
  std::optional<Example> get_if_kept(const Draw& draw) const override;
  bool leaves_out() const override;
  Example get_kept(const Draws& draws, std::vector<size_t>& left_out) const override;
  std::optional<SampleSize> size_of(const Draw& draw) const override;
  // The work of all sources; stages of one name count together.
  std::vector<data::StageUse> stage_use() const override;
  // The caches in memory of all sources together, or else those on the disk.
  std::optional<data::CacheUse> cache_use() const override;
  // Record n of source i of k sources has the number n * k + i.
  std::vector<int64_t> bad_records() const override;
  // Each source gets its own numbers of the samples.
  void announce(const Draws& draws) const override;
  void release(const Draws& draws) const override;

 protected:
  const std::vector<std::shared_ptr<const Source>>& sources() const { return sources_; }
  // The source of a sample, and the draw of the sample in it.
  virtual std::pair<const Source*, Draw> find(const Draw& draw) const = 0;

 private:
  // The draws of the sources that read ahead. The samples of a source and epoch keep their order.
  std::vector<std::pair<const Source*, Draws>> draws_of_sources(const Draws& draws) const;

  std::vector<std::shared_ptr<const Source>> sources_;
};

}  // namespace trireme
