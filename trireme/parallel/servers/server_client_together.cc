// A worker's side of parameter servers: steps that workers compute together.
#include <trireme/parallel/servers/server_client_impl.h>
#include <vector>

namespace trireme {

using servers::ServerCall;
using servers::ServerRequest;

void ServerClient::hold(int64_t samples, Deadline deadline) {
  for (NamedTensor& parameter : parameters_)
    if (at::Tensor& gradient = parameter.tensor.mutable_grad(); gradient.defined())
      gradient = gradient.contiguous();
  if (compressed_ && samples > 0) compressed_->encode(parameters_);
  unsettled_ = newest_ + 1;
  chains_.without_the_lost(deadline, [&] {
    ask(
        "push", chains_.all(), deadline,
        [&](const Link& link) { return held_message(link, newest_ + 1, samples, {}); },
        [](const Link&) { return true; });
  });
}

servers::ServerUpdate ServerClient::next_update(int workers) const {
  servers::ServerUpdate update;
  update.number = newest_ + 1;
  for (int worker = 0; worker < workers; ++worker)
    update.pushes.push_back({options_.generation, worker, update.number});
  return update;
}

double ServerClient::squares(const servers::ServerUpdate& update, Deadline deadline) {
  const std::string text = Json{{"update", to_json(update)}}.dump();
  return chains_.without_the_lost(deadline, [&] {
    double sum = 0;
    for (const net::Reply& reply : ask("norm", chains_.firsts(), deadline, [&](const Link& link) {
           ServerRequest request = request_of(ServerCall::measure, link);
           request.text = text;
           return net::Message{encode(request), {}};
         }))
      sum += Json::parse(servers::decode_reply(reply.header).text).at("squares").get<double>();
    return sum;
  });
}

void ServerClient::follow(const servers::ServerUpdate& update, Deadline deadline) {
  const Json updates = Json::array({to_json(update)});
  chains_.without_the_lost(deadline, [&] { tell(chains_.all(), updates, deadline); });
  if (compressed_) compressed_->commit();
}

void ServerClient::pull_the_missing(Deadline deadline) {
  const int64_t newest = newest_;
  chains_.without_the_lost(deadline, [&] {
    std::vector<Link*> links = chains_.firsts();
    std::erase_if(links, [](const Link* link) { return link->version >= 0; });
    tell(links, Json::array(), deadline);
  });
  newest_ = newest;
}

void ServerClient::refresh(Deadline deadline) {
  chains_.without_the_lost(deadline, [&] { tell(chains_.firsts(), Json::array(), deadline); });
}

}  // namespace trireme
