// The facts that decide about the samples of a data set's part. Two processes compare them before
// one makes samples for the other. No torch.
#pragma once
#include <trireme/base/json.h>
#include <trireme/data/dataset.h>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

struct PartFacts {
  std::string name;  // "train" or "test"
  int64_t samples = 0;
  Json facts;          // Texts under the words by which messages name them.
  std::string digest;  // Of the facts.
  // Equal draws of the index give equal samples, whatever the epoch and the seed.
  bool is_fixed = false;
  // The length of the longest sample, if batches are padded: a request then says how long the
  // longest one of its batch is. 0: they are not padded.
  int64_t longest = 0;
};

// The training part, and the test part if the data set has one. `data` is one of records, or a
// mixture. The stages that mix the samples of a batch are not among the facts: a worker mixes by
// itself. Throws Error(unsupported) for padded samples whose lengths are not known from the index,
// and for what a mixture cannot have.
std::vector<PartFacts> facts_of_parts(const Dataset& data);

// Notes a shared object that this process has opened: the facts of parts whose stages call
// functions have the digests of all of them. Any thread.
void note_library(const std::string& digest);

// Why samples of the one are not samples of the other, with both sides' values: "data.stages is
// \"decode\" here and \"decode | flip\" at the server". Empty if they are the same.
std::string difference(const Json& here, const Json& there);

// A request has at most so many samples.
inline constexpr int64_t kMostSamplesOfRequest = 65536;
// Clients and servers of another protocol do not meet.
inline constexpr const char* kServiceName = "data/1";

}  // namespace trireme::data
