#include <trireme/net/requests/frame_reader.h>
#include <algorithm>
#include <cstring>

namespace trireme::net {
namespace {

constexpr size_t kScrapBytes = 64 << 10;
// After so many bytes others that wait for the reader's lock get a turn.
constexpr size_t kBytesOfATurn = 1 << 20;
constexpr size_t kRooms = 16;  // The tensors of one system call.

}  // namespace

size_t FrameReader::fill(Stream& stream, std::byte* to, size_t bytes) {
  if (begin_ == end_) {
    const bool through_buffer = !stream.in_memory() && bytes < kBuffer;
    iovec room{through_buffer ? buffer_.data() : to, through_buffer ? kBuffer : bytes};
    const size_t got = stream.read_some({&room, 1});
    total_.fetch_add(got, std::memory_order_relaxed);
    if (!through_buffer) return got;
    begin_ = 0;
    end_ = got;
  }
  const size_t part = std::min(bytes, end_ - begin_);
  std::memcpy(to, buffer_.data() + begin_, part);
  begin_ += part;
  return part;
}

size_t FrameReader::read_payload(Stream& stream) {
  std::array<iovec, kRooms> rooms;
  size_t count = 0;
  if (frame_.discarded) {
    scrap_.resize(kScrapBytes);
    rooms[count++] = {scrap_.data(), std::min(scrap_.size(), due_ - have_)};
  } else {
    const Places& places = frame_.placement.places;
    while (tensor_ < places.size() && offset_ == places[tensor_].size()) {
      ++tensor_;
      offset_ = 0;
    }
    size_t offset = offset_;
    for (size_t i = tensor_; i < places.size() && count < kRooms; ++i, offset = 0)
      if (offset < places[i].size())
        rooms[count++] = {places[i].data() + offset, places[i].size() - offset};
  }
  size_t got = 0;
  if (begin_ < end_) {
    got = std::min(rooms[0].iov_len, end_ - begin_);
    std::memcpy(rooms[0].iov_base, buffer_.data() + begin_, got);
    begin_ += got;
  } else {
    got = stream.read_some({rooms.data(), count});
    total_.fetch_add(got, std::memory_order_relaxed);
  }
  for (size_t left = got; !frame_.discarded && left > 0;) {
    const size_t part = std::min(left, frame_.placement.places[tensor_].size() - offset_);
    offset_ += part;
    left -= part;
    if (left > 0) {
      ++tensor_;
      offset_ = 0;
    }
  }
  return got;
}

void FrameReader::begin_payload(const Place& place) {
  try {
    place(frame_);
  } catch (...) {
    frame_.problem = std::current_exception();
  }
  if (frame_.problem) frame_.discarded = true;
  if (frame_.discarded) frame_.placement = {};
  tensor_ = offset_ = 0;
}

// Goes to the next section that needs bytes.
void FrameReader::step(const Place& place) {
  have_ = due_ = 0;
  if (section_ == Section::prefix) {
    check_prefix(frame_.prefix, limits_);
    section_ = Section::front;
    due_ = size_t{frame_.prefix.header_bytes} + frame_.prefix.notes_bytes;
    front_.resize(due_);
    if (due_ > 0) return;
  }
  if (section_ == Section::front) {
    frame_.head = decode_head(frame_.prefix, front_);
    begin_payload(place);
    section_ = Section::payload;
    due_ = frame_.prefix.payload_bytes;
    if (due_ > 0) return;
  }
  section_ = Section::done;
}

FrameReader::Progress FrameReader::advance(Stream& stream, const Place& place) {
  size_t turn = 0;
  while (section_ != Section::done) {
    if (turn >= kBytesOfATurn) return Progress::more;
    std::byte* const to =
        section_ == Section::prefix ? reinterpret_cast<std::byte*>(&frame_.prefix) : front_.data();
    const size_t got = section_ == Section::payload ? read_payload(stream)
                                                    : fill(stream, to + have_, due_ - have_);
    if (got == 0) return Progress::waits;
    turn += got;
    have_ += got;
    if (have_ == due_) step(place);
  }
  return Progress::frame;
}

ReceivedFrame FrameReader::take() {
  ReceivedFrame taken = std::move(frame_);
  frame_ = {};
  section_ = Section::prefix;
  due_ = sizeof(FramePrefix);
  have_ = 0;
  if (front_.capacity() > kScrapBytes) front_ = {};
  return taken;
}

bool FrameReader::is_placing(uint64_t id) const {
  return section_ == Section::payload && frame_.prefix.id == id && !frame_.discarded;
}

void FrameReader::discard_rest() {
  frame_.discarded = true;
  frame_.placement = {};
}

}  // namespace trireme::net
