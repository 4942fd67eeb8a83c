#include <trireme/data/service/wire.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <trireme/data/sample_types.h>
#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

namespace trireme::data {
namespace {

// Smaller rows are copied together: a piece costs more than their copy.
constexpr size_t kLeastPiece = 4096, kMostPieces = 4096;
constexpr int64_t kMostRowBytes = int64_t{4} << 30;
constexpr size_t kMostDims = 63;    // Beside that of the rows.
constexpr size_t kMostShown = 100;  // The bytes of a name in a message.

std::vector<std::pair<std::string, const at::Tensor*>> tensors_of(const Example& row) {
  std::vector<std::pair<std::string, const at::Tensor*>> all{{"data", &row.data},
                                                             {"target", &row.target}};
  for (const auto& [name, tensor] : row.more) all.emplace_back(name, &tensor);
  return all;
}

void require_same_form(const at::Tensor& tensor, const at::Tensor& first) {
  if (tensor.sizes() == first.sizes() && tensor.scalar_type() == first.scalar_type()) return;
  throw Error(ErrorCode::invalid_argument, "data",
              fmt::format("samples of a request have the shapes [{}] and [{}]",
                          fmt::join(first.sizes(), ", "), fmt::join(tensor.sizes(), ", ")),
              "a stage that makes one shape of them");
}

void add_piece(SamplesReply& reply, size_t tensor, const void* bytes, size_t count) {
  reply.message.tensors.push_back({{.name = std::to_string(tensor), .bytes = count}, bytes});
}

// A head that is not of a reply; the message continues "the server gave a reply that".
[[noreturn]] void refuse_reply(const std::string& what) { throw std::invalid_argument(what); }

at::ScalarType type_named(const std::string& name) {
  for (const at::ScalarType type : kSampleTypes)
    if (name == c10::toString(type)) return type;
  refuse_reply(fmt::format("has a tensor of the type \"{}\"", name.substr(0, kMostShown)));
}

int64_t whole_number(const Json& json) {
  if (!json.is_number_integer())
    refuse_reply(fmt::format("has {} instead of a whole number", json.type_name()));
  return json.get<int64_t>();
}

// The tensor that a note announces for `rows` rows.
struct Announced {
  std::string name;
  at::ScalarType type = at::kByte;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

Announced announced_by(const Json& note, int64_t rows) {
  Announced tensor{.name = note.at("name").get<std::string>(),
                   .type = type_named(note.at("dtype").get<std::string>()),
                   .shape = {rows}};
  auto bytes = static_cast<int64_t>(c10::elementSize(tensor.type));
  bool is_empty = false;
  for (const Json& json : note.at("shape").get_ref<const Json::array_t&>()) {
    const int64_t size = whole_number(json);
    // The product of the other sizes has a limit beside a size of 0 too: it becomes a stride.
    const int64_t factor = std::max<int64_t>(1, size);
    if (size < 0 || bytes > kMostRowBytes / factor || tensor.shape.size() > kMostDims)
      refuse_reply("has a wrong shape");
    bytes *= factor;
    is_empty = is_empty || size == 0;
    tensor.shape.push_back(size);
  }
  tensor.bytes = is_empty ? 0 : static_cast<uint64_t>(rows * bytes);
  return tensor;
}

// A new tensor, and the places of its pieces in it.
at::Tensor receive_tensor(const Announced& tensor, std::span<const net::TensorNote> pieces,
                          net::Places& places) {
  uint64_t rest = tensor.bytes;
  for (const net::TensorNote& piece : pieces) {
    if (piece.bytes > rest) refuse_reply("has too many bytes");
    rest -= piece.bytes;
  }
  if (rest != 0) refuse_reply("has too few bytes");
  at::Tensor made = at::empty(tensor.shape, tensor.type);
  auto* at = static_cast<std::byte*>(made.data_ptr());
  for (const net::TensorNote& piece : pieces) {
    places.emplace_back(at, piece.bytes);
    at += piece.bytes;
  }
  return made;
}

std::vector<size_t> left_out_of(const Json& json, int64_t rows, size_t asked) {
  std::vector<size_t> left_out;
  int64_t last = -1;
  for (const Json& each : json.get_ref<const Json::array_t&>()) {
    const int64_t place = whole_number(each);
    if (place <= last || place >= static_cast<int64_t>(asked))
      refuse_reply("leaves out samples that were not asked for");
    left_out.push_back(static_cast<size_t>(last = place));
  }
  if (rows < 0 || rows != static_cast<int64_t>(asked - left_out.size()))
    refuse_reply(
        fmt::format("has {} of {} samples, and leaves {} out", rows, asked, left_out.size()));
  return left_out;
}

ReceivedSamples received_of(const net::Head& head, size_t asked, net::Places& places) {
  ReceivedSamples received;
  const Json json = Json::parse(head.header);
  if (json.contains("work")) received.work = server_work_of(json.at("work"));
  const int64_t rows = whole_number(json.at("rows"));
  received.left_out = left_out_of(json.at("left_out"), rows, asked);
  std::set<std::string> names;
  std::span<const net::TensorNote> rest = head.tensors;
  for (const Json& note : json.at("tensors").get_ref<const Json::array_t&>()) {
    const Announced tensor = announced_by(note, rows);
    if (!names.insert(tensor.name).second)
      refuse_reply(
          fmt::format("names the tensor \"{}\" twice", tensor.name.substr(0, kMostShown)));
    const int64_t pieces = whole_number(note.at("pieces"));
    if (pieces < 0 || pieces > std::ssize(rest)) refuse_reply("lacks pieces of a tensor");
    (tensor.name == "data"     ? received.rows.data
     : tensor.name == "target" ? received.rows.target
                               : received.rows.more[tensor.name]) =
        receive_tensor(tensor, rest.first(static_cast<size_t>(pieces)), places);
    rest = rest.subspan(static_cast<size_t>(pieces));
  }
  if (!rest.empty()) refuse_reply("has more tensors than it names");
  if (rows > 0 && (!received.rows.data.defined() || !received.rows.target.defined()))
    refuse_reply("has no data or no target");
  return received;
}

}  // namespace

SamplesReply reply_of(SampleMaker::Samples samples, const Json& work) {
  SamplesReply reply{.samples = std::move(samples)};
  std::vector<const Example*> rows;
  Json left_out = Json::array();
  for (size_t i = 0; i < reply.samples.size(); ++i) {
    if (reply.samples[i]->is_left_out)
      left_out.push_back(i);
    else
      rows.push_back(&reply.samples[i]->row);
  }
  Json tensors = Json::array();
  std::vector<std::vector<std::pair<std::string, const at::Tensor*>>> each;
  for (const Example* row : rows) {
    each.push_back(tensors_of(*row));
    if (each.back().size() != each[0].size())
      throw Error(ErrorCode::invalid_argument, "data",
                  "samples of a request have different named tensors", "the same names in all");
  }
  for (size_t t = 0; !each.empty() && t < each[0].size(); ++t) {
    const at::Tensor& first = *each[0][t].second;
    const size_t bytes = first.nbytes();
    const bool in_pieces = bytes >= kLeastPiece && rows.size() <= kMostPieces;
    std::vector<std::byte> gathered;
    if (!in_pieces) gathered.resize(bytes * rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto& [name, tensor] = each[i][t];
      if (name != each[0][t].first)
        throw Error(ErrorCode::invalid_argument, "data",
                    "samples of a request have different named tensors", "the same names in all");
      require_same_form(*tensor, first);
      if (in_pieces)
        add_piece(reply, t, tensor->const_data_ptr(), bytes);
      else if (bytes > 0)
        std::memcpy(gathered.data() + i * bytes, tensor->const_data_ptr(), bytes);
    }
    if (!in_pieces) {
      add_piece(reply, t, gathered.data(), gathered.size());
      reply.gathered.push_back(std::move(gathered));  // Its bytes stay where they are.
    }
    tensors.push_back({{"name", each[0][t].first},
                       {"dtype", c10::toString(first.scalar_type())},
                       {"shape", first.sizes().slice(1).vec()},
                       {"pieces", in_pieces ? rows.size() : 1}});
  }
  Json header{{"left_out", left_out}, {"rows", rows.size()}, {"tensors", tensors}};
  if (!work.is_null()) header["work"] = work;
  reply.message.header = header.dump();
  return reply;
}

std::string request_of(const PartFacts& part, const Draws& draws) {
  Json request = {{"op", "get"},
                  {"part", part.digest},
                  {"epoch", draws.epoch},
                  {"seed", draws.seed},
                  {"indices", draws.indices}};
  if (!draws.seeds.empty()) request["seeds"] = draws.seeds;
  if (part.longest > 0) request["longest"] = draws.longest;
  return request.dump();
}

ReceivedSamples receive_into(const net::Head& head, size_t asked, net::Places& places,
                             const std::string& server) {
  std::string problem;
  try {
    return received_of(head, asked, places);
  } catch (const std::invalid_argument& error) {
    problem = error.what();
  } catch (const c10::Error& error) {  // There is no memory of this size.
    problem = fmt::format("cannot be taken: {}", error.what_without_backtrace());
  } catch (const std::exception& error) {
    problem = fmt::format("cannot be read: {}", error.what());
  }
  throw Error(ErrorCode::corrupt, "data", fmt::format("{} gave a reply that {}", server, problem),
              "the same version of Trireme on both sides");
}

}  // namespace trireme::data
