#include <trireme/comm/tcp/round.h>
#include <algorithm>

namespace trireme::comm {
namespace {

// The bytes of a source that may wait to be folded: small enough for the second-level cache.
constexpr size_t kWindow = 256 << 10;
// Fewer bytes than this wait for more, as long as more can come.
constexpr size_t kWorthwhile = 32 << 10;

}  // namespace

void Round::send(int to, const std::byte* data, int64_t elements) {
  if (elements > 0)
    sends_.push_back({to, {data, static_cast<size_t>(elements * plan::bytes_of(dtype_))}});
}

void Round::receive(const std::vector<int>& sources, std::byte* target, const std::byte* own,
                    int64_t elements) {
  if (elements == 0) return;
  const size_t bytes = static_cast<size_t>(elements * plan::bytes_of(dtype_));
  std::vector<const Outgoing*> senders;
  for (const Sending& sending : sends_)
    if (sending.piece.data < target + bytes && target < sending.piece.data + sending.piece.bytes)
      senders.push_back(&sending.piece);
  if (sources.size() == 1 && senders.empty()) {
    if (sources[0] != rank_) receives_.push_back({sources[0], Incoming(target, bytes)});
    return;
  }
  Folding& folding = folds_.emplace_back(Folding{target, own, elements, {}, std::move(senders)});
  for (const int source : sources) {
    if (source == rank_)
      folding.sources.push_back(nullptr);
    else
      folding.sources.push_back(
          &receives_.emplace_back(Receiving{source, Incoming::through_window(bytes, kWindow)})
               .piece);
  }
}

void Round::queue(std::vector<Link>& links) {
  for (Sending& sending : sends_) links[static_cast<size_t>(sending.to)].send(sending.piece);
  for (Receiving& receiving : receives_)
    links[static_cast<size_t>(receiving.from)].receive(receiving.piece);
}

bool Round::advance(Folding& folding) {
  const int64_t size = plan::bytes_of(dtype_);
  int64_t end = folding.elements;
  bool must = false;  // No more bytes can come before some are taken out.
  for (const Incoming* source : folding.sources) {
    if (!source) continue;
    end = std::min(end, folding.done + static_cast<int64_t>(source->content().size()) / size);
    must = must || source->full();
  }
  // Sent bytes count from the start of the piece, which is the start of `target`: both are the
  // same chunk.
  for (const Outgoing* sender : folding.senders)
    end = std::min(end, static_cast<int64_t>(sender->sent) / size);
  const int64_t count = end - folding.done;
  if (count <= 0) return false;
  if (!must && end < folding.elements && count * size < static_cast<int64_t>(kWorthwhile))
    return false;

  std::byte* const target = folding.target + folding.done * size;
  const std::byte* const own = folding.own + folding.done * size;
  std::vector<const void*> parts;
  for (const Incoming* source : folding.sources)
    parts.push_back(source ? static_cast<const void*>(source->content().data())
                           : static_cast<const void*>(own));
  fold_range(dtype_, fold_, target, parts, 0, count);
  for (Incoming* source : folding.sources)
    if (source) source->take(static_cast<size_t>(count * size));
  folding.done = end;
  return true;
}

bool Round::advance_folds() {
  bool any = false;
  for (Folding& folding : folds_)
    if (folding.done < folding.elements) any = advance(folding) || any;
  return any;
}

bool Round::finished() const {
  return std::all_of(sends_.begin(), sends_.end(),
                     [](const Sending& each) { return each.piece.finished(); }) &&
         std::all_of(receives_.begin(), receives_.end(),
                     [](const Receiving& each) { return each.piece.finished(); }) &&
         std::all_of(folds_.begin(), folds_.end(),
                     [](const Folding& each) { return each.done == each.elements; });
}

}  // namespace trireme::comm
