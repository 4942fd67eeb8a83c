#include <trireme/parallel/servers/tables/table_wire.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/wire_bytes.h>
#include <tuple>

namespace trireme::servers {
namespace {

constexpr uint32_t kTableMark = 0x31625054;  // "TPb1"
constexpr std::string_view kTableServer = "table server";

struct TableRequestBytes {
  uint32_t mark = kTableMark;
  uint8_t call = 0, begins = 0, peeks = 0, unused = 0;
  int32_t worker = 0;
  uint32_t tables = 0;  // Their numbers follow, then the text.
  int64_t clock = 0, samples = 0;
};
static_assert(sizeof(TableRequestBytes) == 32, "sent as it lies in memory");

struct TableReplyBytes {
  uint32_t mark = kTableMark;
  uint32_t unused = 0;
  int64_t version = 0, clock = 0;
};
static_assert(sizeof(TableReplyBytes) == 24, "sent as it lies in memory");

}  // namespace

std::string encode(const TableRequest& request) {
  TableRequestBytes bytes;
  bytes.call = static_cast<uint8_t>(request.call);
  bytes.begins = request.begins;
  bytes.peeks = request.peeks;
  bytes.worker = request.worker;
  bytes.tables = static_cast<uint32_t>(request.tables.size());
  bytes.clock = request.clock;
  bytes.samples = request.samples;
  return with_tables(text_of(bytes), request.tables).append(request.text);
}

TableRequest decode_table_request(std::string_view header) {
  const auto bytes = bytes_in<TableRequestBytes>(header, kTableServer);
  if (bytes.call < static_cast<uint8_t>(TableCall::join) ||
      bytes.call > static_cast<uint8_t>(TableCall::leave))
    throw Error(ErrorCode::corrupt, "parallel",
                fmt::format("a table server has no call {}", bytes.call));
  TableRequest request{static_cast<TableCall>(bytes.call),
                       bytes.worker,
                       bytes.clock,
                       bytes.samples,
                       bytes.begins != 0,
                       bytes.peeks != 0};
  std::tie(request.tables, request.text) = tables_in(header, sizeof bytes, bytes.tables);
  return request;
}

std::string encode(const TableReply& reply) {
  TableReplyBytes bytes;
  bytes.version = reply.version;
  bytes.clock = reply.clock;
  return text_of(bytes);
}

TableReply decode_table_reply(std::string_view header) {
  const auto bytes = bytes_in<TableReplyBytes>(header, kTableServer);
  return {bytes.version, bytes.clock};
}

}  // namespace trireme::servers
