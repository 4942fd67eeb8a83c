#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/net/requests/frame.h>
#include <bit>
#include <cstring>

namespace trireme::net {
namespace {

static_assert(std::endian::native == std::endian::little,
              "frames are sent in the byte order of the host");

Error broken_frame(std::string_view what) {
  return Error(ErrorCode::corrupt, "net", what, "the same version of Trireme on both sides");
}

template <typename Number>
void append_number(std::vector<std::byte>& bytes, Number number) {
  const auto* const raw = reinterpret_cast<const std::byte*>(&number);
  bytes.insert(bytes.end(), raw, raw + sizeof number);
}

void append_text(std::vector<std::byte>& bytes, std::string_view text) {
  const auto* const raw = reinterpret_cast<const std::byte*>(text.data());
  bytes.insert(bytes.end(), raw, raw + text.size());
}

void append_note(std::vector<std::byte>& bytes, const TensorNote& note) {
  append_number(bytes, note.bytes);
  append_number(bytes, static_cast<uint16_t>(note.name.size()));
  append_number(bytes, static_cast<uint8_t>(note.dtype.size()));
  append_number(bytes, static_cast<uint8_t>(note.shape.size()));
  append_text(bytes, note.name);
  append_text(bytes, note.dtype);
  for (const int64_t dim : note.shape) append_number(bytes, dim);
}

// Reads the notes from front to back, and never beyond their end.
class NoteReader {
 public:
  explicit NoteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  bool at_end() const { return rest_.empty(); }

  TensorNote next() {
    TensorNote note;
    note.bytes = number<uint64_t>();
    const size_t name = number<uint16_t>(), dtype = number<uint8_t>(), dims = number<uint8_t>();
    note.name = text(name);
    note.dtype = text(dtype);
    note.shape.reserve(dims);
    for (size_t dim = 0; dim < dims; ++dim) note.shape.push_back(number<int64_t>());
    return note;
  }

 private:
  std::span<const std::byte> take(size_t count) {
    if (count > rest_.size()) throw broken_frame("a frame whose tensors' notes are cut off");
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  template <typename Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text(size_t length) {
    const auto bytes = take(length);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  std::span<const std::byte> rest_;
};

std::vector<std::byte> begin_frame(std::string_view header) {
  std::vector<std::byte> frame;
  frame.reserve(sizeof(FramePrefix) + header.size() + 128);
  frame.resize(sizeof(FramePrefix));
  append_text(frame, header);
  return frame;
}

std::vector<std::byte> end_frame(std::vector<std::byte> frame, FramePrefix prefix,
                                 size_t header_bytes) {
  prefix.header_bytes = static_cast<uint32_t>(header_bytes);
  prefix.notes_bytes = static_cast<uint32_t>(frame.size() - sizeof prefix - header_bytes);
  std::memcpy(frame.data(), &prefix, sizeof prefix);
  return frame;
}

size_t note_bytes(const TensorNote& note) {
  return 12 + note.name.size() + note.dtype.size() + 8 * note.shape.size();
}

std::string label_of(const TensorNote& note, size_t index) {
  return note.name.empty() ? fmt::format("tensor {}", index)
                           : fmt::format("tensor {} \"{}\"", index, note.name);
}

Error wrong_message(const NameMessage& what, const std::string& fault, std::string_view remedy) {
  return Error(ErrorCode::invalid_argument, "net", fmt::format("{}: {}", what(), fault), remedy);
}

}  // namespace

std::vector<std::byte> encode_front(FrameKind kind, uint64_t id, const Message& message) {
  std::vector<std::byte> frame = begin_frame(message.header);
  FramePrefix prefix{.kind = kind, .id = id, .tensors = message.tensors.size()};
  for (const Message::Tensor& tensor : message.tensors) {
    append_note(frame, tensor.note);
    prefix.payload_bytes += tensor.note.bytes;
  }
  return end_frame(std::move(frame), prefix, message.header.size());
}

std::vector<std::byte> encode_failure(uint64_t id, ErrorCode code, std::string_view what,
                                      std::string_view remedy) {
  constexpr size_t kMost = 4096;  // Every end accepts a header of this size.
  std::string header(what.substr(0, kMost));
  header += '\0';
  header += remedy.substr(0, kMost);
  return end_frame(begin_frame(header),
                   {.kind = FrameKind::failure, .code = static_cast<uint8_t>(code), .id = id},
                   header.size());
}

std::vector<std::byte> encode_bare(FrameKind kind, uint64_t id) {
  return end_frame(begin_frame({}), {.kind = kind, .id = id}, 0);
}

void check_prefix(const FramePrefix& prefix, const RequestLimits& limits) {
  if (prefix.mark != kFrameMark || prefix.kind < FrameKind::request ||
      prefix.kind > FrameKind::alive)
    throw broken_frame("bytes that do not begin a frame");
  const bool bare = prefix.kind == FrameKind::cancel || prefix.kind == FrameKind::alive;
  const bool plain = bare || prefix.kind == FrameKind::failure;
  if (prefix.unused != 0 || (prefix.code != 0 && prefix.kind != FrameKind::failure) ||
      (plain && (prefix.notes_bytes != 0 || prefix.tensors != 0 || prefix.payload_bytes != 0)) ||
      (bare && prefix.header_bytes != 0) || (prefix.kind == FrameKind::alive && prefix.id != 0))
    throw broken_frame("a frame with parts that its kind does not have");
  const int64_t front = int64_t{prefix.header_bytes} + prefix.notes_bytes;
  if (front > std::max<int64_t>(limits.max_header_bytes, 8193))
    throw broken_frame(fmt::format("a header of {} bytes, more than the limit of {}", front,
                                   limits.max_header_bytes));
  if (prefix.tensors > kMaxTensors)
    throw broken_frame(
        fmt::format("{} tensors in one frame, more than {}", prefix.tensors, kMaxTensors));
  if (prefix.payload_bytes > static_cast<uint64_t>(limits.max_payload_bytes))
    throw broken_frame(fmt::format("a payload of {} bytes, more than the limit of {}",
                                   prefix.payload_bytes, limits.max_payload_bytes));
}

Head decode_head(const FramePrefix& prefix, std::span<const std::byte> front) {
  Head head;
  head.header.assign(reinterpret_cast<const char*>(front.data()), prefix.header_bytes);
  NoteReader notes(front.subspan(prefix.header_bytes));
  uint64_t payload = 0;
  for (uint64_t i = 0; i < prefix.tensors; ++i) {
    head.tensors.push_back(notes.next());
    // No sum of sizes below the limit can overflow.
    if (head.tensors.back().bytes > prefix.payload_bytes)
      throw broken_frame("a tensor that is larger than its frame's payload");
    payload += head.tensors.back().bytes;
  }
  if (!notes.at_end() || payload != prefix.payload_bytes)
    throw broken_frame("a frame whose tensors' notes do not fit its payload");
  return head;
}

void check_message(const NameMessage& what, const Message& message, const RequestLimits& limits) {
  size_t front = message.header.size();
  uint64_t payload = 0;
  if (message.tensors.size() > kMaxTensors)
    throw wrong_message(
        what, fmt::format("it has {} tensors, more than {}", message.tensors.size(), kMaxTensors),
        "fewer tensors in a message");
  for (size_t i = 0; i < message.tensors.size(); ++i) {
    const TensorNote& note = message.tensors[i].note;
    if (note.name.size() > 65535 || note.dtype.size() > 255 || note.shape.size() > 255)
      throw wrong_message(what, label_of({}, i) + " has a name, dtype or shape over the limits",
                          "a name up to 65535 bytes, a dtype up to 255, up to 255 dims");
    front += note_bytes(note);
    if (note.bytes > static_cast<uint64_t>(limits.max_payload_bytes) - payload)
      throw wrong_message(what,
                          fmt::format("its tensors are over the receiver's limit of {}",
                                      format_bytes(limits.max_payload_bytes)),
                          "a smaller message, or RequestLimits::max_payload_bytes");
    payload += note.bytes;
  }
  if (front > static_cast<size_t>(limits.max_header_bytes))
    throw wrong_message(what,
                        fmt::format("its header of {} is over the receiver's limit of {}",
                                    format_bytes(static_cast<int64_t>(front)),
                                    format_bytes(limits.max_header_bytes)),
                        "a tensor for bulk data, or RequestLimits::max_header_bytes");
}

void check_places(const NameMessage& what, const Head& head, const Places& places) {
  if (places.size() != head.tensors.size())
    throw wrong_message(what,
                        fmt::format("it has {} tensors, but memory for {} was given",
                                    head.tensors.size(), places.size()),
                        "memory for each tensor");
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i].size() != head.tensors[i].bytes)
      throw wrong_message(
          what,
          fmt::format("{} has {} bytes, but memory of {} bytes was given",
                      label_of(head.tensors[i], i), head.tensors[i].bytes, places[i].size()),
          "the same dtype and shape on both sides");
}

std::exception_ptr error_of_failure(const FramePrefix& prefix, const Head& head,
                                    const std::string& who) {
  const ErrorCode code = prefix.code <= static_cast<uint8_t>(ErrorCode::internal)
                             ? static_cast<ErrorCode>(prefix.code)
                             : ErrorCode::internal;
  const size_t cut = std::min(head.header.find('\0'), head.header.size());
  return std::make_exception_ptr(
      Error(code, "net", fmt::format("{}: {}", who, head.header.substr(0, cut)),
            cut == head.header.size() ? "" : head.header.substr(cut + 1)));
}

}  // namespace trireme::net
