#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <trireme/parallel/compression/error_memory.h>
#include <trireme/parallel/compression/quantised.h>
#include <trireme/plan/quantised_layout.h>
#include <optional>

namespace trireme::compression {
namespace {

class Quantised : public Compressor {
 public:
  Quantised(std::shared_ptr<Group> group, const CompressedBucket& bucket,
            std::unique_ptr<Codec> codec, bool error_feedback)
      : group_(std::move(group)),
        codec_(std::move(codec)),
        elements_(bucket.elements),
        layout_(plan::lay_out_quantised(elements_, group_->size(),
                                        {codec_->block(), codec_->block_bytes()})) {
    if (error_feedback) errors_.emplace(bucket);
  }

  void all_reduce(const at::Tensor& flat) override {
    const at::NoGradGuard no_grad;
    std::vector<Piece> pieces;
    for (int64_t start = 0; start < layout_.chunk; start += layout_.piece)
      pieces.push_back(scatter(flat, start, std::min(layout_.piece, layout_.chunk - start)));
    for (Piece& piece : pieces) reduce(flat, piece);
    for (const Piece& piece : pieces) finish(piece, flat);
  }

  void commit() override {
    if (errors_) errors_->commit();
  }
  StateView state() override { return errors_ ? errors_->state() : StateView(); }

 private:
  // A part of every rank's chunk. While one piece is on its way, others are encoded, summed and
  // decoded. All messages have one tag, so every rank sends and receives them in one order: the
  // parts of all pieces, then the sums of all pieces.
  struct Piece {
    int64_t start = 0, length = 0;  // The place in a chunk, in elements.
    // The encoded parts and sums by rank. `parts` has no entry for this rank.
    std::vector<at::Tensor> parts, sums;
    std::vector<WorkPtr> scattering, gathering;
  };

  at::Tensor room_for(const Piece& piece) const {
    return at::empty({layout_.bytes_of(piece.length)}, at::kByte);
  }

  Piece scatter(const at::Tensor& flat, int64_t start, int64_t length) {
    const int ranks = group_->size(), self = group_->rank();
    Piece piece{start, length, std::vector<at::Tensor>(ranks), std::vector<at::Tensor>(ranks),
                {},    {}};
    for (int distance = 1; distance < ranks; ++distance) {
      const int to = (self + distance) % ranks, from = (self - distance + ranks) % ranks;
      piece.parts[from] = room_for(piece);
      piece.scattering.push_back(
          group_->send_async(encode(piece, to, values_of(flat, piece, to)), to));
      piece.scattering.push_back(group_->recv_async(piece.parts[from], from));
    }
    return piece;
  }

  // Sums this rank's chunk and sends the sum to all other ranks.
  void reduce(const at::Tensor& flat, Piece& piece) {
    const int ranks = group_->size(), self = group_->rank();
    for (const WorkPtr& message : piece.scattering) message->wait();
    const at::Tensor sum = at::zeros({piece.length}, at::kFloat);
    for (int rank = 0; rank < ranks; ++rank)  // The owner's own part needs no encoding.
      sum.add_(rank == self ? values_of(flat, piece, self) : decode(piece, piece.parts[rank]));
    // The owner of the sum keeps its error. The place in the error memory is free, because the
    // owner's part was not encoded.
    piece.sums[self] = encode(piece, self, sum);
    for (int distance = 1; distance < ranks; ++distance) {
      const int to = (self + distance) % ranks, from = (self - distance + ranks) % ranks;
      piece.sums[from] = room_for(piece);
      piece.gathering.push_back(group_->send_async(piece.sums[self], to));
      piece.gathering.push_back(group_->recv_async(piece.sums[from], from));
    }
  }

  void finish(const Piece& piece, const at::Tensor& flat) const {
    for (const WorkPtr& message : piece.gathering) message->wait();
    for (int rank = 0; rank < group_->size(); ++rank)
      put(flat, rank, piece, decode(piece, piece.sums[rank]));
  }

  at::Tensor encode(const Piece& piece, int rank, const at::Tensor& values) {
    const at::Tensor bytes = room_for(piece),
                     left = errors_ ? at::empty_like(values) : at::Tensor();
    codec_->encode(values.const_data_ptr<float>(), piece.length / codec_->block(),
                   static_cast<std::byte*>(bytes.mutable_data_ptr()),
                   errors_ ? left.mutable_data_ptr<float>() : nullptr);
    if (errors_) put(errors_->left(), rank, piece, left);
    return bytes;
  }

  at::Tensor decode(const Piece& piece, const at::Tensor& bytes) const {
    const at::Tensor values = at::empty({piece.length}, at::kFloat);
    codec_->decode(static_cast<const std::byte*>(bytes.const_data_ptr()),
                   piece.length / codec_->block(), values.mutable_data_ptr<float>());
    return values;
  }

  // The place of a piece in a tensor of the bucket's layout, without the zeros that
  // fill up chunks.
  at::Tensor place_of(const at::Tensor& flat, int rank, const Piece& piece) const {
    const int64_t start = std::min(elements_, rank * layout_.chunk + piece.start);
    return flat.narrow(0, start, std::min(elements_ - start, piece.length));
  }

  // This rank's values: its gradients and what was left out of them before.
  at::Tensor values_of(const at::Tensor& flat, const Piece& piece, int rank) const {
    at::Tensor values = place_of(flat, rank, piece);
    if (errors_) values = values + place_of(errors_->kept(), rank, piece);
    values = values.to(at::kFloat);
    if (values.numel() == piece.length) return values;
    const at::Tensor filled_up = at::zeros({piece.length}, at::kFloat);
    filled_up.narrow(0, 0, values.numel()).copy_(values);
    return filled_up;
  }

  void put(const at::Tensor& flat, int rank, const Piece& piece, const at::Tensor& values) const {
    const at::Tensor place = place_of(flat, rank, piece);
    place.copy_(values.narrow(0, 0, place.numel()));
  }

  std::shared_ptr<Group> group_;
  std::unique_ptr<Codec> codec_;
  int64_t elements_;
  plan::QuantisedLayout layout_;
  std::optional<ErrorMemory> errors_;
};

}  // namespace

std::unique_ptr<Compressor> make_quantised(std::shared_ptr<Group> group,
                                           const CompressedBucket& bucket,
                                           std::unique_ptr<Codec> codec, bool error_feedback) {
  return std::make_unique<Quantised>(std::move(group), bucket, std::move(codec), error_feedback);
}

}  // namespace trireme::compression
