#include <trireme/comm/splits.h>
#include <algorithm>
#include <numeric>
#include <utility>

namespace trireme::comm {
namespace {

std::vector<int64_t> places_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> places(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), places.begin(), int64_t{0});
  return places;
}

}  // namespace

Splits Splits::of_equal_blocks(int size, int rank, int64_t block) {
  const auto ranks = static_cast<size_t>(size);
  Splits splits;
  splits.sent = splits.received = std::vector<int64_t>(ranks, block);
  splits.sent_at = splits.received_at = places_of(splits.sent);
  splits.at_source.assign(ranks, rank * block);
  splits.total = size * block;
  splits.largest = block;
  return splits;
}

Splits Splits::of(std::vector<std::vector<int64_t>> sent_of, int rank) {
  const auto self = static_cast<size_t>(rank);
  Splits splits;
  splits.equal = false;
  splits.sent = sent_of[self];
  for (const std::vector<int64_t>& sent : sent_of) {
    splits.received.push_back(sent[self]);
    splits.at_source.push_back(places_of(sent)[self]);
    splits.total += std::accumulate(sent.begin(), sent.end(), int64_t{0});
    splits.largest = std::max(splits.largest, *std::max_element(sent.begin(), sent.end()));
  }
  splits.sent_at = places_of(splits.sent);
  splits.received_at = places_of(splits.received);
  splits.all = std::move(sent_of);
  return splits;
}

Splits Splits::among(const std::vector<int>& ranks, int place) const {
  if (equal) return of_equal_blocks(static_cast<int>(ranks.size()), place, largest);
  std::vector<std::vector<int64_t>> sent_of;
  for (const int from : ranks) {
    auto& lengths = sent_of.emplace_back();
    for (const int to : ranks)
      lengths.push_back(all[static_cast<size_t>(from)][static_cast<size_t>(to)]);
  }
  return of(std::move(sent_of), place);
}

}  // namespace trireme::comm
