#include <torch/torch.h>

#include <trireme/parallel/compression/error_memory.h>
#include <trireme/parallel/compression/quantised.h>
#include <optional>

namespace trireme::compression {
namespace {

constexpr int64_t kPieceElements = 128 << 10;  // Small for a core's caches, and large for a message.

class Quantised : public Compressor {
 public:
  Quantised(std::shared_ptr<Group> group, const CompressedBucket& bucket, std::unique_ptr<Codec> codec, bool error_feedback)
      : group_(std::move(group)), codec_(std::move(codec)), elements_(bucket.elements) {
    // Chunks of whole blocks, one a rank, alike in size: the last ones are filled up with zeros.
    const int64_t unit = codec_->block() * group_->size();
    chunk_ = (elements_ + unit - 1) / unit * codec_->block();
    piece_ = std::max<int64_t>(1, kPieceElements / codec_->block()) * codec_->block();
    values_ = at::zeros({chunk_ * group_->size()}, at::kFloat);
    if (error_feedback) errors_.emplace(bucket);
  }

  int64_t all_reduce(const at::Tensor& flat) override {
    const torch::NoGradGuard no_grad;
    if (errors_) flat.add_(errors_->flat());
    values_.narrow(0, 0, elements_).copy_(flat);
    std::vector<Piece> pieces;
    for (int64_t start = 0; start < chunk_; start += piece_) pieces.push_back(send(start, std::min(piece_, chunk_ - start)));
    for (Piece& piece : pieces) reduce(piece);
    for (const Piece& piece : pieces) finish(piece, flat);
    // To each other rank its part of mine, and the sum of my chunk.
    return 2 * (group_->size() - 1) * bytes_of(chunk_);
  }

  std::vector<NamedTensor> state() override { return errors_ ? errors_->state() : std::vector<NamedTensor>(); }

 private:
  // A part of every rank's chunk: while one is on its way, others are encoded, summed and decoded.
  struct Piece {
    int64_t start = 0, length = 0;  // In a chunk, in elements.
    at::Tensor received;            // [rank][bytes]; my own place is not used.
    at::Tensor sums;                // [rank][bytes]
    std::vector<at::Tensor> sent;
    std::vector<WorkPtr> messages;
    WorkPtr gathered;
  };

  int64_t bytes_of(int64_t elements) const { return elements / codec_->block() * codec_->block_bytes(); }
  at::Tensor values_of(const Piece& piece, int rank) const { return values_.narrow(0, rank * chunk_ + piece.start, piece.length); }

  Piece send(int64_t start, int64_t length) {
    const int ranks = group_->size(), self = group_->rank();
    Piece piece;
    piece.start = start;
    piece.length = length;
    piece.received = at::empty({ranks, bytes_of(length)}, at::kByte);
    piece.sums = at::empty_like(piece.received);
    for (int distance = 1; distance < ranks; ++distance) {
      const int to = (self + distance) % ranks, from = (self - distance + ranks) % ranks;
      const at::Tensor values = values_of(piece, to), encoded = codec_->encode(values);
      piece.messages.push_back(group_->send_async(encoded, to));
      piece.messages.push_back(group_->recv_async(piece.received[from], from));
      if (errors_) put(errors_->flat(), to, piece, values - codec_->decode(encoded));
      piece.sent.push_back(encoded);
    }
    return piece;
  }

  // Of my chunk; the sum goes to everybody.
  void reduce(Piece& piece) {
    const int self = group_->rank();
    // Messages first: a carrier without a thread of its own moves none while a collective is waited for.
    for (const WorkPtr& message : piece.messages) message->wait();
    const at::Tensor sum = at::zeros({piece.length}, at::kFloat);
    for (int rank = 0; rank < group_->size(); ++rank)  // The owner's own part needs no encoding.
      sum.add_(rank == self ? values_of(piece, self) : codec_->decode(piece.received[rank]));
    piece.sent.push_back(codec_->encode(sum));
    piece.gathered = group_->all_gather_async(piece.sent.back(), piece.sums.view({-1}));
    // The sum's own error is its owner's; the place in the memory is free, as the owner's part was not encoded.
    if (errors_) put(errors_->flat(), self, piece, sum - codec_->decode(piece.sent.back()));
  }

  void finish(const Piece& piece, const at::Tensor& flat) const {
    piece.gathered->wait();
    for (int rank = 0; rank < group_->size(); ++rank) put(flat, rank, piece, codec_->decode(piece.sums[rank]));
  }

  // `values` to their place in a tensor of the bucket's layout, without what fills up the last chunks.
  void put(const at::Tensor& flat, int rank, const Piece& piece, const at::Tensor& values) const {
    const int64_t start = std::min(elements_, rank * chunk_ + piece.start), length = std::min(elements_ - start, piece.length);
    flat.narrow(0, start, length).copy_(values.narrow(0, 0, length));
  }

  std::shared_ptr<Group> group_;
  std::unique_ptr<Codec> codec_;
  int64_t elements_, chunk_ = 0, piece_ = 0;  // piece_: at most so many elements of a chunk travel together.
  at::Tensor values_;                         // float32, size() chunks.
  std::optional<ErrorMemory> errors_;
};

}  // namespace

std::unique_ptr<Compressor> make_quantised(std::shared_ptr<Group> group, const CompressedBucket& bucket, std::unique_ptr<Codec> codec,
                                           bool error_feedback) {
  return std::make_unique<Quantised>(std::move(group), bucket, std::move(codec), error_feedback);
}

}  // namespace trireme::compression
