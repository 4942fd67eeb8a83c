// Samples as messages of a request channel.
//
//   request  {"op": "get", "part": DIGEST, "epoch": 3, "seed": 7, "indices": [5, 0, 3]}, and
//            "seeds" if the draws have their own, and "longest" for a part that is padded
//   reply    {"left_out": [1], "rows": 2, "tensors": [{"name": "data", "dtype": "Float",
//             "shape": [3, 224, 224], "pieces": 2}, ...]}, and the pieces of each tensor in order;
//             "work": the server's work for the part (server_work.h), which a reply may lack
//
// A server sends large rows from where they lie, each as a piece of its own. The receiver puts the
// pieces of a tensor behind each other.
#pragma once
#include <trireme/data/service/facts.h>
#include <trireme/data/service/sample_maker.h>
#include <trireme/data/service/server_work.h>
#include <trireme/net/requests/message.h>
#include <optional>
#include <string>
#include <vector>

namespace trireme::data {

// A reply, and the memory that its tensors view.
struct SamplesReply {
  net::Message message;
  SampleMaker::Samples samples;
  std::vector<std::vector<std::byte>> gathered;
};
// Throws Error(invalid_argument) if the samples have different forms: they make no batch.
SamplesReply reply_of(SampleMaker::Samples samples, const Json& work = nullptr);

std::string request_of(const PartFacts& part, const Draws& draws);

// Rows whose memory a reply fills.
struct ReceivedSamples {
  Example rows;
  std::vector<size_t> left_out;  // Places in the request.
  std::optional<ServerWork> work;
};
// Makes the tensors that a reply's head announces for `asked` samples, and the places of its
// pieces in them. Throws Error(corrupt), and nothing else, that begins with `server` for a head
// that is not of such a reply. Nothing is allocated before the sizes are those of the pieces.
ReceivedSamples receive_into(const net::Head& head, size_t asked, net::Places& places,
                             const std::string& server);

}  // namespace trireme::data
