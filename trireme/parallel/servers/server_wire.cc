#include <trireme/parallel/servers/server_wire.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/wire_bytes.h>
#include <utility>

namespace trireme::servers {
namespace {

constexpr uint32_t kServerMark = 0x34735054;  // "TPs4"
constexpr std::string_view kServer = "parameter server";
constexpr uint32_t kUnchanged = 1, kEarly = 2, kDeposed = 4, kCompensates = 8, kAllBeside = 16;

struct RequestBytes {
  uint32_t mark = kServerMark;
  uint8_t call = 0;
  uint8_t to_copy = 0;
  uint16_t shard = 0;
  int32_t worker = 0, generation = 0;
  int64_t clock = 0, samples = 0, known = 0, follows = 0;
  int32_t wait_ms = 0;
  uint32_t tables = 0;  // Their numbers follow, then the text.
};
static_assert(sizeof(RequestBytes) == 56, "sent as it lies in memory");

struct ReplyBytes {
  uint32_t mark = kServerMark;
  uint32_t flags = 0;
  int64_t version = 0, clock = 0;
};
static_assert(sizeof(ReplyBytes) == 24, "sent as it lies in memory");

}  // namespace

Json to_json(const CountedLease& counted) {
  return {counted.lease, counted.worker, counted.loss ? Json(*counted.loss) : Json(),
          counted.samples};
}

CountedLease counted_in(const Json& json) {
  const Json& loss = json.at(2);
  return {json.at(0), json.at(1),
          loss.is_null() ? std::nullopt : std::optional(loss.get<double>()), json.at(3)};
}

Json to_json(const ServerUpdate& update) {
  Json pushes = Json::array(), counted = Json::array();
  for (const PushId& push : update.pushes)
    pushes.push_back({push.generation, push.worker, push.clock});
  for (const CountedLease& each : update.counted) counted.push_back(to_json(each));
  Json json = {update.number,      std::move(pushes), update.rates,      update.scale,
               update.compensates, update.term,       std::move(counted)};
  json.push_back(update.stopped
                     ? Json{update.stopped->limit, update.stopped->stop, update.stopped->regroup}
                     : Json());
  json.push_back(update.mode ? plan::to_json(*update.mode) : Json());
  return json;
}

ServerUpdate update_in(const Json& json) {
  ServerUpdate update{json.at(0), {},         json.at(2).get<std::vector<double>>(),
                      json.at(3), json.at(4), json.at(5)};
  for (const Json& push : json.at(1))
    update.pushes.push_back({push.at(0), push.at(1), push.at(2)});
  for (const Json& each : json.at(6)) update.counted.push_back(counted_in(each));
  if (const Json& stopped = json.at(7); !stopped.is_null())
    update.stopped = {stopped.at(0), stopped.at(1), stopped.at(2)};
  if (const Json& mode = json.at(8); !mode.is_null()) update.mode = plan::consistency_in(mode);
  return update;
}

Json to_json(const std::vector<ServerUpdate>& updates) {
  Json list = Json::array();
  for (const ServerUpdate& update : updates) list.push_back(to_json(update));
  return list;
}

std::vector<ServerUpdate> updates_in(const Json& json) {
  std::vector<ServerUpdate> updates;
  for (const Json& each : json) updates.push_back(update_in(each));
  return updates;
}

std::string told_form(const plan::TensorSpec& tensor) {
  return fmt::format("{} {}", tensor.name, tensor.describe());
}

std::string encode(const ServerRequest& request) {
  RequestBytes bytes;
  bytes.call = static_cast<uint8_t>(request.call);
  bytes.to_copy = request.to_copy ? 1 : 0;
  bytes.shard = static_cast<uint16_t>(request.shard);
  bytes.worker = request.worker;
  bytes.generation = request.generation;
  bytes.clock = request.clock;
  bytes.samples = request.samples;
  bytes.known = request.known;
  bytes.follows = request.follows;
  bytes.wait_ms = request.wait_ms;
  bytes.tables = static_cast<uint32_t>(request.tables.size());
  return with_tables(text_of(bytes), request.tables).append(request.text);
}

ServerRequest decode_request(std::string_view header) {
  const auto bytes = bytes_in<RequestBytes>(header, kServer);
  if (bytes.call < static_cast<uint8_t>(ServerCall::join) ||
      bytes.call > static_cast<uint8_t>(ServerCall::hold_early))
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("a parameter server has no call {}", bytes.call));
  auto [tables, text] = tables_in(header, sizeof bytes, bytes.tables);
  return {static_cast<ServerCall>(bytes.call),
          bytes.worker,
          bytes.generation,
          bytes.clock,
          bytes.samples,
          bytes.known,
          bytes.follows,
          bytes.wait_ms,
          bytes.shard,
          bytes.to_copy != 0,
          std::move(tables),
          text};
}

namespace {

constexpr uint32_t kRiddenMark = 0x52735054;  // "TPsR"

struct RiddenBytes {
  uint32_t mark = kRiddenMark, riders = 0;  // RiderBytes for each follow, then the headers.
};
struct RiderBytes {
  uint32_t header_bytes = 0, tensors = 0;
};

}  // namespace

std::string with_riders(const std::vector<RiddenRequest::Rider>& riders, std::string_view header) {
  std::string all = text_of(RiddenBytes{.riders = static_cast<uint32_t>(riders.size())});
  for (const RiddenRequest::Rider& each : riders)
    all += text_of(RiderBytes{static_cast<uint32_t>(each.header.size()),
                              static_cast<uint32_t>(each.tensors)});
  for (const RiddenRequest::Rider& each : riders) all += each.header;
  return all.append(header);
}

RiddenRequest riders_in(std::string_view header) {
  RiddenBytes bytes;
  if (header.size() >= sizeof bytes) std::memcpy(&bytes, header.data(), sizeof bytes);
  if (header.size() < sizeof bytes || bytes.mark != kRiddenMark) return {{}, header};
  std::string_view rest = header.substr(sizeof bytes);
  const auto take = [&](size_t count) {
    if (count > rest.size())
      throw Error(
          ErrorCode::corrupt, "parallel",
          fmt::format("a header of {} bytes lists {} riders", header.size(), bytes.riders));
    const std::string_view taken = rest.substr(0, count);
    rest.remove_prefix(count);
    return taken;
  };
  const std::string_view list = take(bytes.riders * sizeof(RiderBytes));
  RiddenRequest request;
  for (size_t i = 0; i < bytes.riders; ++i) {
    RiderBytes rider;
    std::memcpy(&rider, list.data() + i * sizeof rider, sizeof rider);
    request.riders.push_back({take(rider.header_bytes), rider.tensors});
  }
  request.header = rest;
  return request;
}

std::vector<std::string_view> split_replies(std::string_view header, size_t riders) {
  if (header.size() < riders * sizeof(ReplyBytes))
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("a reply of {} bytes for {} riders", header.size(), riders));
  std::vector<std::string_view> replies;
  for (size_t i = 0; i < riders; ++i)
    replies.push_back(header.substr(i * sizeof(ReplyBytes), sizeof(ReplyBytes)));
  replies.push_back(header.substr(riders * sizeof(ReplyBytes)));
  return replies;
}

std::string encode(const ServerReply& reply) {
  ReplyBytes bytes;
  bytes.flags = (reply.is_unchanged ? kUnchanged : 0) | (reply.is_early ? kEarly : 0) |
                (reply.is_deposed ? kDeposed : 0) | (reply.compensates ? kCompensates : 0) |
                (reply.has_all_beside ? kAllBeside : 0);
  bytes.version = reply.version;
  bytes.clock = reply.clock;
  return text_of(bytes) + reply.text;
}

ServerReply decode_reply(std::string_view header) {
  const auto bytes = bytes_in<ReplyBytes>(header, kServer);
  return {bytes.version,
          bytes.clock,
          (bytes.flags & kUnchanged) != 0,
          (bytes.flags & kEarly) != 0,
          (bytes.flags & kDeposed) != 0,
          (bytes.flags & kCompensates) != 0,
          (bytes.flags & kAllBeside) != 0,
          std::string(header.substr(sizeof bytes))};
}

}  // namespace trireme::servers
