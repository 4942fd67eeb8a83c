#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/comm/message_form.h>
#include <trireme/comm/mpi/mpi_calls.h>
#include <trireme/comm/mpi/mpi_messages.h>
#include <algorithm>
#include <array>
#include <limits>

namespace trireme::comm {
namespace {

// Every MPI has tags up to 32767. The header of a message has the tag of the message, and its body
// one by the number of the message.
constexpr int kBodyTag = 16384;

int byte_count_of(const at::Tensor& tensor) {
  return in_range(static_cast<int64_t>(tensor.nbytes()), "bytes");
}

at::Tensor header_of(const MessageForm& form, int body_tag) {
  at::Tensor header = at::empty({3}, at::kLong);
  auto* const numbers = header.mutable_data_ptr<int64_t>();
  numbers[0] = form.bytes, numbers[1] = form.type, numbers[2] = body_tag;
  return header;
}

}  // namespace

void leave_to_mpi(std::vector<at::Tensor> tensors) {
  static std::mutex mutex;
  static auto* const left = new std::vector<at::Tensor>;
  const std::lock_guard lock(mutex);
  left->insert(left->end(), tensors.begin(), tensors.end());
}

int in_range(int64_t count, const char* of_what) {
  if (count > std::numeric_limits<int>::max())
    throw Error(ErrorCode::unsupported, "comm",
                fmt::format("MPI counts up to 2^31-1, and the tensor has {} {}", count, of_what),
                "smaller tensors, or comm.backend: auto");
  return static_cast<int>(count);
}

class MpiMessages::SendWork : public Work {
 public:
  SendWork(std::shared_ptr<MpiMessages> messages, at::Tensor tensor, int to, int tag)
      : messages_(std::move(messages)), tensor_(std::move(tensor)) {
    const auto number = static_cast<int>(messages_->sent_++ % kBodyTag);
    const int body_tag = kBodyTag + number, bytes = byte_count_of(tensor_);
    header_ = header_of(form_of(tensor_), body_tag);
    start_one(0, header_, byte_count_of(header_), to, tag);
    if (bytes > 0) start_one(1, tensor_, bytes, to, body_tag);
  }
  ~SendWork() override {
    if (!over_) leave_to_mpi({tensor_, header_});
  }
  void wait() override {
    limit_ = Deadline::after(messages_->limits_->timeout());
    while (!wait_for(messages_->limits_->timeout())) continue;
  }
  bool wait_for(Milliseconds patience) override {
    const Deadline deadline = Deadline::after(std::min(patience, limit_.remaining()));
    for (MPI_Request& request : requests_) {
      if (request == mpi().request_null) continue;
      const MpiEnd end = await(request, deadline, [&] {
        messages_->limits_->throw_if_lost();
        messages_->advance();
      });
      if (!end.complaint.empty()) messages_->limits_->explain("send", end.complaint);
      if (!end.done && limit_.expired()) messages_->limits_->time_out("send", "the other ranks");
      if (!end.done) return false;
      request = mpi().request_null;
    }
    over_ = true;
    return true;
  }

 private:
  void start_one(size_t number, const at::Tensor& tensor, int bytes, int to, int tag) {
    const std::string complaint = call_mpi(mpi().Isend, tensor.const_data_ptr(), bytes, mpi().byte,
                                           to, tag, messages_->ranks_, &requests_[number]);
    if (!complaint.empty()) messages_->limits_->explain("send", complaint);
  }

  std::shared_ptr<MpiMessages> messages_;
  at::Tensor tensor_, header_;
  Deadline limit_ = Deadline::after(messages_->limits_->timeout());
  std::array<MPI_Request, 2> requests_{mpi().request_null, mpi().request_null};
  bool over_ = false;
};

// A receive. Its members are guarded by the mutex of the messages until its body has begun.
struct MpiMessages::Receipt {
  at::Tensor tensor, header;
  int from, tag;
  at::Tensor place;  // The place of the body: the tensor, or memory of its own if it does not fit.
  MPI_Request head = mpi().request_null, body = mpi().request_null;
  MessageDifference difference;
  std::string complaint;
  std::atomic<bool> begun{false};  // The body was asked for, or MPI complained.

  ~Receipt() {
    if (head != mpi().request_null || body != mpi().request_null)
      leave_to_mpi({tensor, header, place});
  }
};

class MpiMessages::ReceiveWork : public Work {
 public:
  ReceiveWork(std::shared_ptr<MpiMessages> messages, std::shared_ptr<Receipt> receipt)
      : messages_(std::move(messages)), receipt_(std::move(receipt)) {}
  void wait() override {
    limit_ = Deadline::after(messages_->limits_->timeout());
    while (!wait_for(messages_->limits_->timeout())) continue;
  }
  bool wait_for(Milliseconds patience) override {
    if (is_over_by(Deadline::after(std::min(patience, limit_.remaining())))) {
      refuse_message(receipt_->difference);
      return true;
    }
    if (limit_.expired())
      messages_->limits_->time_out(
          "recv", fmt::format("a message of rank {} (tag {})", receipt_->from, receipt_->tag));
    return false;
  }

 private:
  bool is_over_by(Deadline deadline) {
    const auto look = [&] {
      messages_->limits_->throw_if_lost();
      messages_->advance();
    };
    look();
    if (!poll([&] { return receipt_->begun.load(); }, deadline, look)) return false;
    if (!receipt_->complaint.empty()) messages_->limits_->explain("recv", receipt_->complaint);
    if (receipt_->body != mpi().request_null) {
      const MpiEnd end = await(receipt_->body, deadline, look);
      if (!end.complaint.empty()) messages_->limits_->explain("recv", end.complaint);
      if (!end.done) return false;
      receipt_->body = mpi().request_null;
    }
    return true;
  }

  std::shared_ptr<MpiMessages> messages_;
  std::shared_ptr<Receipt> receipt_;
  Deadline limit_ = Deadline::after(messages_->limits_->timeout());
};

WorkPtr MpiMessages::send(at::Tensor tensor, int to, int tag) {
  limits_->throw_if_lost();
  return std::make_unique<SendWork>(shared_from_this(), std::move(tensor), to, tag);
}

WorkPtr MpiMessages::receive(at::Tensor tensor, int from, int tag) {
  limits_->throw_if_lost();
  auto receipt = std::make_shared<Receipt>();
  receipt->tensor = std::move(tensor);
  receipt->header = at::empty({3}, at::kLong);
  receipt->from = from;
  receipt->tag = tag;
  const std::string complaint =
      call_mpi(mpi().Irecv, receipt->header.mutable_data_ptr(), byte_count_of(receipt->header),
               mpi().byte, from, tag, ranks_, &receipt->head);
  if (!complaint.empty()) limits_->explain("recv", complaint);
  const std::lock_guard lock(mutex_);
  without_body_.push_back(receipt);
  return std::make_unique<ReceiveWork>(shared_from_this(), std::move(receipt));
}

void MpiMessages::advance() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // Another thread is at it.
  std::erase_if(without_body_, [&](const std::shared_ptr<Receipt>& receipt) {
    int done = 0;
    receipt->complaint = call_mpi(mpi().Test, &receipt->head, &done, MPI_STATUS_IGNORE);
    if (done != 0 && receipt->complaint.empty()) begin_body(*receipt);
    if (done == 0 && receipt->complaint.empty()) return false;
    receipt->begun = true;
    return true;
  });
}

void MpiMessages::begin_body(Receipt& receipt) {
  const auto* const numbers = receipt.header.const_data_ptr<int64_t>();
  const MessageForm sent{numbers[0], static_cast<int32_t>(numbers[1])};
  receipt.difference = {sent, form_of(receipt.tensor), receipt.from, receipt.tag};
  if (sent.bytes == 0) return;
  receipt.place = receipt.difference.empty() ? receipt.tensor : at::empty({sent.bytes}, at::kByte);
  receipt.complaint =
      call_mpi(mpi().Irecv, receipt.place.mutable_data_ptr(), byte_count_of(receipt.place),
               mpi().byte, receipt.from, static_cast<int>(numbers[2]), ranks_, &receipt.body);
}

}  // namespace trireme::comm
