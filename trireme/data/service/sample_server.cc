#include <trireme/data/service/sample_server.h>

#include <ATen/core/Tensor.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/error_parts.h>
#include <trireme/data/service/wire.h>
#include <algorithm>
#include <random>
#include <utility>

namespace trireme::data {
namespace {

constexpr int kMostSenders = 64;
// More requests at a time are refused; their workers make the samples.
constexpr int64_t kMostUnderWay = 4096;

std::vector<SampleMaker::Part> parts_to_make(const std::vector<ServedPart>& parts) {
  std::vector<SampleMaker::Part> all;
  for (const ServedPart& part : parts) all.push_back({part.source, part.facts.is_fixed});
  return all;
}

uint64_t number_of_start() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

// Checks a request before anything is allocated for it.
Draws draws_in(const Json& question, const PartFacts& part) {
  const Json& indices = question.at("indices");
  const auto count = std::ssize(indices.get_ref<const Json::array_t&>());
  if (count < 1 || count > kMostSamplesOfRequest)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("a request for {} samples; the limits are 1 and {}", count,
                            kMostSamplesOfRequest));
  Draws draws(indices.get<std::vector<int64_t>>(), question.at("epoch").get<int64_t>(),
              question.at("seed").get<uint64_t>());
  if (question.contains("seeds")) {
    draws.seeds = question["seeds"].get<std::vector<uint64_t>>();
    if (draws.seeds.size() != draws.indices.size())
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("{} seeds for {} samples", draws.seeds.size(), count));
  }
  for (const int64_t index : draws.indices)
    if (index < 0 || index >= part.samples)
      throw Error(ErrorCode::invalid_argument, "data",
                  fmt::format("sample {} is outside 0..{}", index, part.samples - 1));
  if (part.longest > 0) draws.longest = question.at("longest").get<int64_t>();
  if (draws.longest < 0 || draws.longest > part.longest)
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("a batch whose longest sample has a length of {}; the limit is {}",
                            draws.longest, part.longest));
  return draws;
}

}  // namespace

Json to_json(const ServiceUse& use) {
  Json stages = Json::object();
  for (const auto& [part, of_part] : use.stages) stages[part] = to_json(of_part);
  return {{"clients", use.clients},
          {"asked", use.asked},
          {"made", use.made},
          {"served", use.served},
          {"served_bytes", use.served_bytes},
          {"failed", use.failed},
          {"kept", use.kept},
          {"kept_bytes", use.kept_bytes},
          {"threads", use.threads},
          {"stages", std::move(stages)}};
}

SampleServer::SampleServer(std::vector<ServedPart> parts, const SampleServerOptions& options)
    : parts_(std::move(parts)),
      start_(number_of_start()),
      threads_(options.threads),
      served_of_part_(parts_.size()),
      senders_(kMostSenders) {
  maker_ = std::make_unique<SampleMaker>(parts_to_make(parts_), options.threads, options.bytes);
  net::RequestServerOptions channel;
  channel.service = kServiceName;
  channel.limits.max_header_bytes = int64_t{4} << 20;
  channel.limits.max_payload_bytes = 0;  // Requests have no tensors.
  requests_ = std::make_unique<net::RequestServer>(
      options.listen, options.token,
      net::RequestHandler{.handle =
                              [this](net::Request request, net::Responder responder) {
                                handle(std::move(request), std::move(responder));
                              }},
      channel);
}

// No request comes any more, then no sample is made, and then no reply is sent.
SampleServer::~SampleServer() {
  requests_.reset();
  maker_.reset();
}

ServiceUse SampleServer::use() const {
  ServiceUse use;
  static_cast<MakerUse&>(use) = maker_->use();
  use.served = served_, use.served_bytes = served_bytes_, use.failed = failed_;
  use.clients = requests_->clients();
  use.threads = threads_;
  for (size_t part = 0; part < parts_.size(); ++part)
    use.stages.emplace_back(parts_[part].facts.name, stages_of(part));
  return use;
}

std::vector<StageUse> SampleServer::stages_of(size_t part) const {
  std::vector<StageUse> stages = parts_[part].source->stage_use();
  if (stages.empty()) stages.push_back(maker_->load_of(part));
  return stages;
}

ServerWork SampleServer::work_of(size_t part) const {
  return {start_, threads_, served_of_part_[part], stages_of(part)};
}

void SampleServer::handle(net::Request request, net::Responder responder) {
  try {
    const Json question = Json::parse(request.head.header);
    const auto op = question.at("op").get<std::string>();
    if (op == "compare") return compare(question, responder);
    if (op == "get") return order(question, request.client, std::move(responder));
    if (op == "use") {
      responder.reply({.header = to_json(use()).dump()});
      return;
    }
    throw Error(ErrorCode::unsupported, "data", fmt::format("there is no request \"{}\"", op));
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("a request that is none of the data service: {}", error.what()),
                "the same version of Trireme on both sides");
  }
}

// The client says which part it wants, and by which facts.
void SampleServer::compare(const Json& question, net::Responder& responder) const {
  const auto name = question.at("part").get<std::string>();
  const Json& facts = question.at("facts");
  const auto part = std::ranges::find_if(
      parts_, [&](const ServedPart& each) { return each.facts.name == name; });
  if (part == parts_.end())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the server has no {} part of the data", name),
                "the same configuration as at the server");
  if (const std::string other = difference(facts, part->facts.facts); !other.empty())
    throw Error(ErrorCode::invalid_argument, "data",
                fmt::format("the server makes other samples of the {} part: {}", name, other),
                "the same configuration, files and version on both sides");
  responder.reply({.header = Json{{"digest", part->facts.digest}}.dump()});
}

void SampleServer::order(const Json& question, const std::string& client,
                         net::Responder responder) {
  const auto digest = question.at("part").get<std::string>();
  const auto part = std::ranges::find_if(
      parts_, [&](const ServedPart& each) { return each.facts.digest == digest; });
  if (part == parts_.end())
    throw Error(ErrorCode::invalid_argument, "data",
                "the server makes samples of other data than those of this request",
                "the same configuration as at the server");
  const Draws draws = draws_in(question, part->facts);
  if (under_way_ >= kMostUnderWay)
    throw Error(ErrorCode::unsupported, "data", "the server has too many requests at a time");
  ++under_way_;
  // It counts until the last copy of the callbacks is gone.
  struct Answer {
    Answer(SampleServer& of, net::Responder to) : server(of), responder(std::move(to)) {}
    ~Answer() { --server.under_way_; }
    SampleServer& server;
    net::Responder responder;
  };
  const auto answer = std::make_shared<Answer>(*this, std::move(responder));
  const auto number = static_cast<size_t>(part - parts_.begin());
  maker_->make(
      number, draws,
      {.done =
           [this, answer, client, number](SampleMaker::Samples samples) {
             senders_.add(client, [this, answer, number, samples = std::move(samples)]() mutable {
               try {
                 served_of_part_[number] += std::ssize(samples);
                 const SamplesReply reply = reply_of(std::move(samples), to_json(work_of(number)));
                 if (!answer->responder.reply(reply.message)) return;
                 served_ += std::ssize(reply.samples);
                 for (const auto& sample : reply.samples) served_bytes_ += sample->bytes;
               } catch (const Error& error) {
                 ++failed_;
                 const ErrorParts parts = parts_of(error);
                 answer->responder.fail(error.code(), parts.what, parts.remedy);
               }
             });
           },
       .failed =
           [this, answer, client](const std::exception_ptr& problem) {
             ++failed_;
             senders_.add(client, [answer, problem] {
               try {
                 std::rethrow_exception(problem);
               } catch (const std::exception& error) {
                 const auto* const known = dynamic_cast<const Error*>(&error);
                 const ErrorParts parts = parts_of(error);
                 answer->responder.fail(known ? known->code() : ErrorCode::internal, parts.what,
                                        parts.remedy);
               }
             });
           },
       .cancelled = [answer] { return answer->responder.cancelled(); }});
}

}  // namespace trireme::data
