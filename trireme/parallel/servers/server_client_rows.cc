// A worker's side of parameter servers: rows of embedding tables.
#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/checkpoint/file_system.h>
#include <trireme/checkpoint/parts.h>
#include <trireme/parallel/servers/server_client_impl.h>
#include <trireme/parallel/servers/tables/table_state.h>
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

using servers::ServerCall;
using servers::ServerReply;
using servers::ServerRequest;

std::vector<at::Tensor> ServerClient::rows(const std::vector<RowsOfTable>& wanted, bool peeks,
                                           Deadline deadline) {
  for (const RowsOfTable& each : wanted)
    servers::check_wanted(options_.tables.facts.tables, each, options_.worker);
  return chains_.without_the_lost(deadline, [&] {
    const servers::DealtPull dealt(options_.tables, wanted);
    chains_.ask(
        "rows", chains_.firsts(),
        [&](const Link& link) {
          net::Message message;
          ServerRequest request =
              request_of(peeks ? ServerCall::peek_rows : ServerCall::rows, link);
          request.tables = dealt.add_to(message, link.shard);
          message.header = encode(request);
          return message;
        },
        [&](const Link& link) { return net::into(dealt.places(link.shard)); }, deadline);
    return dealt.values();
  });
}

void ServerClient::give_rows(const std::vector<servers::RowValues>& gradients) {
  gradients_of_rows_ = {options_.tables, gradients};
}

bool ServerClient::rows_are_of(int64_t version, Deadline deadline) {
  const auto replies = chains_.without_the_lost(deadline, [&] {
    return ask("rows of a version", chains_.all(), deadline, [&](const Link& link) {
      ServerRequest request = request_of(ServerCall::rows_as_of, link);
      request.clock = version;
      return net::Message{encode(request), {}};
    });
  });
  return std::ranges::all_of(replies, [version](const net::Reply& reply) {
    return servers::decode_reply(reply.header).version == version;
  });
}

void ServerClient::tell_again_after(int64_t version) {
  for (Link* const link : chains_.all()) link->told = std::min(link->told, version);
}

// Servers may still write into the folder of a try during which one of them was lost, so that each
// try has its own. What is left of it goes when the folder of checkpoints is opened next.
void ServerClient::save_rows(const std::filesystem::path& folder, int64_t step,
                             checkpoint::Part& part, Deadline deadline) {
  const std::string name = part.attempt;
  int tries = 0;
  chains_.without_the_lost(deadline, [&] {
    if (tries++ > 0) {
      part.attempt = fmt::format("{}-{}", name, tries);
      checkpoint::open_unfinished(checkpoint::disk(),
                                  checkpoint::unfinished_path(folder, step, part));
    }
    std::vector<std::vector<int64_t>> counts;  // [server][table]
    for (const Json& told : facts_of(chains_.firsts(), deadline)) {
      counts.emplace_back();
      for (const Json& table : told.at("tables")) counts.back().push_back(table.at("rows"));
    }
    ask("rows for a checkpoint", chains_.firsts(), deadline, [&](const Link& link) {
      Json ranges = Json::array();
      for (const RowRange& range : row_ranges(counts, link.shard))
        ranges.push_back({range.first, range.total});
      ServerRequest request = request_of(ServerCall::save_rows, link);
      const std::string text = Json{
          {"folder", folder.string()},
          {"step", step},
          {"index", part.count - chains_.shards() + link.shard},
          {"count", part.count},
          {"attempt", part.attempt},
          {"ranges",
           std::move(ranges)}}.dump();
      request.text = text;
      return net::Message{encode(request), {}};
    });
  });
}

void ServerClient::load_rows(const std::vector<std::filesystem::path>& files, Deadline deadline) {
  Json names = Json::array();
  for (const std::filesystem::path& file : files) names.push_back(file.string());
  const std::string text = Json{{"files", std::move(names)}}.dump();
  chains_.without_the_lost(deadline, [&] {
    ask("rows of a checkpoint", chains_.all(), deadline, [&](const Link& link) {
      ServerRequest request = request_of(ServerCall::load_rows, link);
      request.text = text;
      return net::Message{encode(request), {}};
    });
  });
}

// In parts, so that a table may be larger than the memory of this process. Each part may take as
// long as `patience`.
void ServerClient::copy_rows(const Link& from, Link& to, Milliseconds patience) {
  for (size_t table = 0; table < options_.tables.facts.tables.size(); ++table) {
    int64_t done = 0;
    for (bool has_more = true; has_more;) {
      const Deadline deadline = Deadline::after(patience);
      std::vector<std::vector<std::byte>> memory;
      const auto places = [&](const net::Head& head) {
        net::Places all;
        for (const net::TensorNote& note : head.tensors)
          all.emplace_back(memory.emplace_back(note.bytes).data(), note.bytes);
        return all;
      };
      const std::string wish = Json{{"table", table}, {"from", done}}.dump();
      ServerRequest request = request_of(ServerCall::read_rows, from);
      request.text = wish;
      const net::Message read{encode(request), {}};
      Link source = from;
      const net::Reply reply = chains_.ask(
          "rows of a chain", {&source}, [&](const Link&) { return read; },
          [&](const Link&) { return places; }, deadline)[0];
      request = request_of(ServerCall::write_rows, to);
      const std::string told =
          Json{{"table", table}, {"version", servers::decode_reply(reply.header).version}}.dump();
      request.text = told;
      net::Message write{encode(request), {}};
      for (size_t i = 0; i < reply.tensors.size(); ++i)
        write.tensors.push_back({reply.tensors[i], memory[i].data()});
      ask_one("rows of a chain", to, deadline, std::move(write));
      done += reply.tensors.at(0).shape.at(0);
      has_more = Json::parse(servers::decode_reply(reply.header).text).at("more");
    }
  }
}

}  // namespace trireme
