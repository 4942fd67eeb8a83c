// A worker's side of parameter servers: gradients that go to other hosts while backward computes
// others, so that the link works meanwhile (Zhang et al. 2017, "Poseidon", arXiv 1706.03292,
// section 3.1). A push needs fewer bytes then, and says how many pieces have gone before.
#include <ATen/core/Tensor.h>
#include <trireme/base/error.h>
#include <trireme/parallel/servers/server_client_early.h>
#include <algorithm>
#include <utility>

namespace trireme {

using servers::ServerCall;
using servers::ServerRequest;

ServerClient::Early::Early() : thread([this](const std::stop_token& stop) { send_on(stop); }) {}

// A message leaves when the bytes of those before it have left, so it is a thread of its own that
// waits for the link.
void ServerClient::Early::send_on(const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  while (changed.wait(lock, stop, [&] { return !jobs.empty(); })) {
    const Job job = std::move(jobs.front());
    jobs.pop_front();
    OfLink& of = links[job.link];
    lock.unlock();
    try {
      const Deadline deadline = Deadline::after(patience);
      of.replies.push_back(of.client->start(job.message, net::into({}), deadline, "push"));
    } catch (const std::exception&) {  // The push brings all, and meets the same error.
      of.has_failed = true;
    }
    lock.lock();
    --under_way;
    changed.notify_all();
  }
}

void ServerClient::Early::wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return under_way == 0; });
}

void ServerClient::begin_early(bool together, Milliseconds patience) {
  forget_early();
  if (options_.early_bytes == 0 || compressed_) return;
  std::vector<Early::OfLink> links;
  for (const Link* const link : chains_.all()) {
    std::shared_ptr<net::RequestClient> client = chains_.client_of(link->server);
    if (client->path() != net::RequestPath::tcp) continue;
    links.push_back({.shard = link->shard, .server = link->server, .client = std::move(client)});
    links.back().sent.pieces.resize(pieces_of(link->shard).size());
  }
  if (links.empty()) return;
  if (!early_) early_ = std::make_unique<Early>();
  early_->links = std::move(links);
  early_->complete.assign(parameters_.size(), false);
  early_->step = together ? newest_ + 1 : clock_;
  early_->failures = chains_.failures();
  early_->patience = patience;
  ++early_->attempt;
  early_->is_open = early_->counts = true;
}

void ServerClient::gradient_is_complete(int parameter) {
  const auto number = static_cast<size_t>(parameter);
  if (!early_ || !early_->is_open || !early_->counts) return;
  if (early_->complete[number]) {
    early_->counts = false;  // What went was not all of it.
    return;
  }
  early_->complete[number] = true;
  const at::Tensor& tensor = parameters_[number].tensor;
  const at::Tensor& gradient = tensor.grad();
  if (!gradient.defined() || !gradient.is_contiguous()) return;
  for (size_t i = 0; i < early_->links.size(); ++i) {
    Early::OfLink& of = early_->links[i];
    const auto& pieces = pieces_of(of.shard);
    for (size_t piece = 0; piece < pieces.size(); ++piece) {
      if (pieces[piece].tensor != parameter) continue;
      of.waiting.push_back(piece);
      of.bytes += pieces[piece].count * tensor.element_size();
    }
    if (of.bytes >= options_.early_bytes) send_early(i);
  }
}

void ServerClient::send_early(size_t link) {
  Early::OfLink& of = early_->links[link];
  const std::string text = Json{{"attempt", early_->attempt}}.dump();
  ServerRequest request{.call = ServerCall::hold_early,
                        .worker = options_.worker,
                        .generation = options_.generation,
                        .clock = early_->step,
                        .samples = 1,
                        .shard = of.shard,
                        .to_copy = true};
  request.text = text;
  net::Message message{encode(request),
                       std::vector<net::Message::Tensor>(pieces_of(of.shard).size())};
  for (const size_t piece : of.waiting) {
    message.tensors[piece] = gradient_of(of.shard, piece);
    of.sent.pieces[piece] = true;
  }
  of.sent.count += std::ssize(of.waiting);
  sent_early_ += std::ssize(of.waiting);
  of.waiting.clear();
  of.bytes = 0;
  const std::lock_guard lock(early_->mutex);
  early_->jobs.push_back({link, std::move(message)});
  ++early_->under_way;
  early_->changed.notify_all();
}

void ServerClient::end_early() {
  if (!early_ || !std::exchange(early_->is_open, false)) return;
  early_->wait();
  const Deadline deadline = Deadline::after(early_->patience);
  for (Early::OfLink& of : early_->links) {
    of.sent.attempt = early_->attempt;
    for (net::PendingReply& reply : of.replies) try {
        reply.wait(deadline);
      } catch (const std::exception&) {
        of.has_failed = true;
      }
    of.replies.clear();
    of.client.reset();
  }
}

// A push that is made again has all gradients.
const servers::SentEarly* ServerClient::sent_early_to(const Link& link, int64_t step) const {
  if (!early_ || !early_->counts || early_->is_open || early_->step != step ||
      early_->failures != chains_.failures())
    return nullptr;
  for (const Early::OfLink& of : early_->links)
    if (of.shard == link.shard && of.server == link.server)
      return of.has_failed || of.sent.count == 0 ? nullptr : &of.sent;
  return nullptr;
}

void ServerClient::forget_early() {
  if (early_) early_->counts = false;
}

}  // namespace trireme
