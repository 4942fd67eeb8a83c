#include <trireme/data/packed_source.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/hash.h>
#include <trireme/data/pipeline/mixed_source.h>
#include <trireme/data/stack.h>
#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme {
namespace {

[[noreturn]] void refuse_document(const std::string& what) {
  throw Error(ErrorCode::invalid_argument, "data", "packing: " + what,
              "the documents whose lengths the plan of the packs was made of");
}

}  // namespace

PackedSource::PackedSource(std::shared_ptr<const Source> documents,
                           std::shared_ptr<const plan::Packing> packing, int64_t padding,
                           bool leaves_out)
    : documents_(std::move(documents)), packing_(std::move(packing)), padding_(padding) {
  if (!documents_ || !packing_) refuse_document("there are no documents, or no plan of the packs");
  if (!leaves_out || documents_->mixes_batches())
    require_single_samples(documents_.get(), "packing");
  if (documents_->size() != packing_->documents())
    refuse_document(fmt::format("{} documents, and {} in the plan", documents_->size(),
                                packing_->documents()));
}

std::vector<plan::PackPart> PackedSource::parts_of(int64_t pack) const {
  const std::lock_guard lock(mutex_);
  return packing_->pack(pack);
}

int64_t PackedSource::reads_ahead() const {
  const int64_t ahead = documents_->reads_ahead(), documents = packing_->documents();
  if (ahead == 0 || documents == 0) return 0;
  const double share = std::min(1.0, static_cast<double>(ahead + packing_->options().window) /
                                         static_cast<double>(documents));
  return static_cast<int64_t>(share * static_cast<double>(packing_->packs())) + 1;
}

Draws PackedSource::documents_of(const Draws& draws) const {
  Draws documents({}, draws.epoch, draws.seed);
  for (const int64_t pack : draws.indices)
    for (const plan::PackPart& part : parts_of(pack)) documents.indices.push_back(part.document);
  return documents;
}

void PackedSource::announce(const Draws& draws) const {
  documents_->announce(documents_of(draws));
}

void PackedSource::release(const Draws& draws) const { documents_->release(documents_of(draws)); }

Example PackedSource::get(const Draw& draw) const {
  std::optional<Example> pack = get_if_kept(draw);
  if (!pack) data::require_all(Draws({draw.index}), {0});
  return *std::move(pack);
}

Example PackedSource::get_kept(const Draws& draws, std::vector<size_t>& left_out) const {
  const KeptSamples kept = kept_samples(*this, draws, left_out);
  if (!kept.examples.empty()) return stack_examples(kept.examples, kept.indices);
  const Example one = empty_pack();
  const auto no_rows = [](const at::Tensor& tensor) {
    return tensor.new_empty({0, tensor.size(0)});
  };
  Example none{no_rows(one.data), no_rows(one.target)};
  for (const auto& [name, tensor] : one.more) none.more.emplace(name, no_rows(tensor));
  return none;
}

Example PackedSource::empty_pack() const {
  const int64_t size = packing_->options().tokens;
  Example pack{at::full({size}, padding_, at::kLong), at::full({size}, kNoTarget, at::kLong)};
  pack.more = {{"positions", at::zeros({size}, at::kLong)},
               {"documents", at::full({size}, -1, at::kLong)}};
  return pack;
}

std::optional<Example> PackedSource::get_if_kept(const Draw& draw) const {
  Example pack = empty_pack();
  auto* const positions = pack.more.at("positions").mutable_data_ptr<int64_t>();
  auto* const documents = pack.more.at("documents").mutable_data_ptr<int64_t>();
  int64_t place = 0, number = 0;
  for (const auto& [document, from, count] : parts_of(draw.index)) {
    const std::optional<Example> kept = documents_->get_if_kept(
        {document, draw.epoch, mix64(draw.seed, static_cast<uint64_t>(document))});
    if (!kept) return std::nullopt;
    const at::Tensor& read = kept->data;
    if (!read.defined() || read.dim() != 1 || read.is_floating_point() ||
        read.size(0) < from + count)
      refuse_document(fmt::format(
          "document {} is {}, and the plan takes tokens {} to {} of it", document,
          read.defined() ? fmt::format("{} of shape [{}]", c10::toString(read.scalar_type()),
                                       fmt::join(read.sizes(), ", "))
                         : "nothing",
          from, from + count));
    const at::Tensor tokens = read.to(at::kLong).contiguous();
    const auto* const first = tokens.const_data_ptr<int64_t>() + from;
    std::copy_n(first, count, pack.data.mutable_data_ptr<int64_t>() + place);
    const int64_t targets = std::min(count, tokens.size(0) - from - 1);
    std::copy_n(first + 1, targets, pack.target.mutable_data_ptr<int64_t>() + place);
    std::iota(positions + place, positions + place + count, int64_t{0});
    std::fill_n(documents + place, count, number++);
    place += count;
  }
  return pack;
}

}  // namespace trireme
