#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <trireme/base/hash.h>
#include <trireme/checkpoint/digest.h>
#include <trireme/tensor/on_host.h>
#include <trireme/train/replica_check.h>
#include <algorithm>
#include <cstring>
#include <map>

namespace trireme {
namespace {

using checkpoint::kDigestPiece, checkpoint::PieceDigest;

// A tree of two levels: the pieces are hashed, and then their digests.
PieceDigest digest_of(const at::Tensor& tensor) {
  const at::Tensor whole = on_host(tensor);
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(whole.const_data_ptr()),
                                         whole.nbytes());
  std::vector<PieceDigest> pieces;
  for (size_t at = 0; at < bytes.size(); at += kDigestPiece)
    pieces.push_back(
        checkpoint::digest_of_piece(bytes.subspan(at, std::min(kDigestPiece, bytes.size() - at))));
  return checkpoint::digest_of_piece(std::as_bytes(std::span(pieces)));
}

// Returns the digests of all ranks, rank after rank.
std::vector<PieceDigest> gather(std::span<const PieceDigest> mine, Group& group) {
  const auto bytes = static_cast<int64_t>(mine.size_bytes());
  const at::Tensor input = at::empty({bytes}, at::kByte),
                   output = at::empty({bytes * group.size()}, at::kByte);
  std::memcpy(input.mutable_data_ptr(), mine.data(), mine.size_bytes());
  group.all_gather(input, output);
  std::vector<PieceDigest> all(mine.size() * static_cast<size_t>(group.size()));
  std::memcpy(all.data(), output.const_data_ptr(), output.nbytes());
  return all;
}

std::string named(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

std::string who_differs(const std::vector<PieceDigest>& of_ranks) {
  std::map<PieceDigest, std::vector<int>> camps;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank)
    camps[of_ranks[rank]].push_back(static_cast<int>(rank));
  const auto largest = std::max_element(
      camps.begin(), camps.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (2 * largest->second.size() > of_ranks.size()) {
    std::vector<int> others;
    for (const auto& [digest, ranks] : camps)
      if (digest != largest->first) others.insert(others.end(), ranks.begin(), ranks.end());
    std::sort(others.begin(), others.end());
    return fmt::format("{} differ from those of the other {} replicas", named(others),
                       largest->second.size());
  }
  std::vector<std::string> all;
  for (const auto& [digest, ranks] : camps) all.push_back(named(ranks));
  std::sort(all.begin(), all.end());
  return fmt::format("{} differ from each other, and no majority tells which is right",
                     fmt::join(all, " and "));
}

bool differ(const std::vector<PieceDigest>& digests) {
  return std::any_of(digests.begin(), digests.end(),
                     [&](const PieceDigest& digest) { return digest != digests.front(); });
}

// Returns a bit in the upper half of the fraction: the number changes visibly,
// and its exponent stays.
int bit_of(at::ScalarType type, uint64_t draw) {
  switch (type) {
    case at::kDouble: return static_cast<int>(40 + draw % 12);
    case at::kHalf: return static_cast<int>(6 + draw % 4);
    case at::kBFloat16: return static_cast<int>(4 + draw % 3);
    default: return static_cast<int>(16 + draw % 7);
  }
}

}  // namespace

std::string differing_replicas(const std::vector<NamedTensor>& tensors, Group& group) {
  if (group.size() == 1 || tensors.empty()) return {};
  std::vector<PieceDigest> mine;
  for (const auto& [name, tensor] : tensors) mine.push_back(digest_of(tensor));
  const PieceDigest whole = checkpoint::digest_of_piece(std::as_bytes(std::span(mine)));
  const std::vector<PieceDigest> of_ranks = gather({&whole, 1}, group);
  if (!differ(of_ranks)) return {};

  const std::vector<PieceDigest> of_tensors = gather(mine, group);
  const size_t count = mine.size();
  for (size_t i = 0; i < count; ++i) {
    std::vector<PieceDigest> digests;
    for (size_t at = i; at < of_tensors.size(); at += count) digests.push_back(of_tensors[at]);
    if (differ(digests))
      return fmt::format("the parameters of {}; '{}' is the first that does",
                         who_differs(of_ranks), tensors[i].name);
  }
  return fmt::format("the parameters of {}", who_differs(of_ranks));
}

std::string flip_a_bit(const std::vector<NamedTensor>& tensors, uint64_t seed) {
  std::vector<const NamedTensor*> targets;
  for (const NamedTensor& named : tensors)
    if (named.tensor.is_floating_point() && named.tensor.numel() > 0 &&
        named.tensor.is_contiguous())
      targets.push_back(&named);
  if (targets.empty()) return {};
  const NamedTensor& target = *targets[mix64(seed, 1) % targets.size()];
  const auto size = static_cast<uint64_t>(target.tensor.element_size());
  const uint64_t element = mix64(seed, 2) % static_cast<uint64_t>(target.tensor.numel());
  const int bit = bit_of(target.tensor.scalar_type(), mix64(seed, 3));
  // mutable_data_ptr() does not fit here: a tensor that shares its storage by copy-on-write would
  // return a copy.
  const at::Tensor values = on_host(target.tensor);
  auto* const bytes = static_cast<uint8_t*>(const_cast<void*>(values.const_data_ptr()));
  bytes[element * size + static_cast<uint64_t>(bit / 8)] ^= static_cast<uint8_t>(1u << (bit % 8));
  if (!target.tensor.is_cpu()) target.tensor.detach().copy_(values);
  return target.name;
}

}  // namespace trireme
