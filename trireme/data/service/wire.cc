#include <trireme/data/service/wire.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <trireme/base/error.h>
#include <trireme/base/json.h>
#include <cstring>
#include <utility>

namespace trireme::data {
namespace {

// Smaller rows are copied together: a piece costs more than their copy.
constexpr size_t kLeastPiece = 4096, kMostPieces = 4096;
constexpr int64_t kMostRowBytes = int64_t{4} << 30;

constexpr at::ScalarType kTypes[] = {
    at::kByte, at::kChar, at::kShort,    at::kInt,    at::kLong,         at::kFloat,
    at::kHalf, at::kBool, at::kBFloat16, at::kDouble, at::kComplexFloat, at::kComplexDouble};

at::ScalarType type_named(const std::string& name) {
  for (const at::ScalarType type : kTypes)
    if (name == c10::toString(type)) return type;
  throw Error(ErrorCode::corrupt, "data", fmt::format("a reply has a tensor of type {}", name),
              "the same version of Trireme on both sides");
}

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

[[noreturn]] void refuse_reply(const std::string& what) {
  throw Error(ErrorCode::corrupt, "data", fmt::format("a reply of the data service {}", what),
              "the same version of Trireme on both sides");
}

// The tensor that a note announces, for `rows` rows.
at::Tensor announced(const Json& note, int64_t rows) {
  const at::ScalarType type = type_named(note.at("dtype").get<std::string>());
  std::vector<int64_t> shape = note.at("shape").get<std::vector<int64_t>>();
  auto bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : shape) {
    if (size < 0 || (size > 0 && bytes > kMostRowBytes / size)) refuse_reply("has a wrong shape");
    bytes *= size;
  }
  shape.insert(shape.begin(), rows);
  return at::empty(shape, type);
}

}  // namespace

SamplesReply reply_of(SampleMaker::Samples samples) {
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
  reply.message.header =
      Json{{"left_out", left_out}, {"rows", rows.size()}, {"tensors", tensors}}.dump();
  return reply;
}

std::string request_of(const std::string& digest, const Draws& draws) {
  Json request = {{"op", "get"},
                  {"part", digest},
                  {"epoch", draws.epoch},
                  {"seed", draws.seed},
                  {"indices", draws.indices}};
  if (!draws.seeds.empty()) request["seeds"] = draws.seeds;
  return request.dump();
}

ReceivedSamples receive_into(const net::Head& head, size_t asked, net::Places& places) {
  ReceivedSamples received;
  try {
    const Json json = Json::parse(head.header);
    const auto rows = json.at("rows").get<int64_t>();
    received.left_out = json.at("left_out").get<std::vector<size_t>>();
    if (rows < 0 || static_cast<size_t>(rows) + received.left_out.size() != asked)
      refuse_reply(fmt::format("has {} of {} samples", rows, asked));
    for (size_t i = 0; i < received.left_out.size(); ++i)
      if (received.left_out[i] >= asked ||
          (i > 0 && received.left_out[i] <= received.left_out[i - 1]))
        refuse_reply("leaves out samples that were not asked for");
    size_t next = 0;
    for (const Json& note : json.at("tensors")) {
      const at::Tensor tensor = announced(note, rows);
      auto* at = static_cast<std::byte*>(tensor.data_ptr());
      size_t rest = tensor.nbytes();
      const auto pieces = note.at("pieces").get<size_t>();
      if (next > head.tensors.size() || pieces > head.tensors.size() - next)
        refuse_reply("lacks pieces of a tensor");
      for (size_t piece = 0; piece < pieces; ++piece) {
        const uint64_t bytes = head.tensors[next++].bytes;
        if (bytes > rest) refuse_reply("has too many bytes");
        places.emplace_back(at, bytes);
        at += bytes;
        rest -= bytes;
      }
      if (rest != 0) refuse_reply("has too few bytes");
      const auto name = note.at("name").get<std::string>();
      (name == "data"     ? received.rows.data
       : name == "target" ? received.rows.target
                          : received.rows.more[name]) = tensor;
    }
    if (next != head.tensors.size()) refuse_reply("has more tensors than it names");
    if (rows > 0 && (!received.rows.data.defined() || !received.rows.target.defined()))
      refuse_reply("has no data or no target");
  } catch (const Json::exception& error) {
    refuse_reply(fmt::format("cannot be read: {}", error.what()));
  }
  return received;
}

}  // namespace trireme::data
