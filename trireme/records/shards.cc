#include <trireme/records/shards.h>

#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <cstring>
#include <optional>

namespace trireme::records {
namespace {

constexpr size_t kMostOpenFiles = 128;

// A damaged file stays so, and is not unpacked again for each of its records. Another failure,
// such as a disk's, may be over at the next record.
bool is_damaged(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Damage& damage) {
    return damage.code == ErrorCode::corrupt;
  } catch (...) {
    return false;
  }
}

void require_memory(uint64_t bytes, const UnpackLimits& limits) {
  if (bytes > static_cast<uint64_t>(limits.memory_bytes))
    throw Damage(
        fmt::format("it has {}, more than the {} of memory for a record",
                    format_bytes(static_cast<int64_t>(bytes)), format_bytes(limits.memory_bytes)),
        "more memory for a record", ErrorCode::invalid_argument);
}

}  // namespace

Shards::Shards(DataFiles files, UnpackLimits limits, bool may_be_packed)
    : files_(std::move(files)),
      limits_(limits),
      packings_(files_.names.size(), Packing::none),
      open_(files_.names.size()) {
  if (!may_be_packed) return;
  for (size_t file = 0; file < count(); ++file)
    with_place([&] { return path(file).string(); },
               [&] { packings_[file] = packing_of(DataFile(path(file))); });
}

std::vector<FileIdentity> Shards::identities() const {
  std::vector<FileIdentity> all;
  for (size_t file = 0; file < count(); ++file) {
    all.push_back(with_place([&] { return path(file).string(); },
                             [&] { return DataFile(path(file)).identity(); }));
    all.back().name = name(file);
  }
  return all;
}

void Shards::expect(std::span<const FileIdentity> identities) {
  sizes_.clear();
  for (const FileIdentity& identity : identities) sizes_.push_back(identity.bytes);
}

std::shared_ptr<const DataFile> Shards::open(size_t file) const {
  const std::lock_guard lock(mutex_);
  if (open_[file]) return open_[file];
  auto opened = std::make_shared<const DataFile>(path(file));
  if (!sizes_.empty() && static_cast<int64_t>(opened->size()) != sizes_[file])
    throw Damage(fmt::format("the file has {} bytes, but had {} when it was indexed",
                             opened->size(), sizes_[file]),
                 "trireme data index, if the change was meant");
  if (opened_.size() >= kMostOpenFiles) {
    open_[opened_.front()].reset();
    opened_.pop_front();
  }
  opened_.push_back(file);
  return open_[file] = std::move(opened);
}

// The memory of all blocks that are kept is that of one block at its largest. Records keep the
// blocks that they view for themselves.
void Shards::forget_old_blocks() const {
  uint64_t bytes = 0;
  size_t kept = 0;
  for (auto each = unpacked_.rbegin(); each != unpacked_.rend(); ++each) {
    bytes += blocks_.at(*each).bytes;
    if (kept > 0 && bytes > static_cast<uint64_t>(limits_.memory_bytes)) break;
    ++kept;
  }
  while (unpacked_.size() > kept) {
    blocks_.erase(unpacked_.front());
    unpacked_.pop_front();
  }
}

Shards::SharedBlock Shards::block(size_t file) const {
  std::optional<std::promise<SharedBlock>> promise;
  {
    std::unique_lock lock(mutex_);
    if (const auto found = blocks_.find(file); found != blocks_.end()) {
      if (unpacked_.back() != file) {
        const auto place = std::ranges::find(unpacked_, file);
        unpacked_.splice(unpacked_.end(), unpacked_, place);
      }
      const std::shared_future<SharedBlock> future = found->second.future;
      lock.unlock();
      // The thread that unpacks it always comes to an end, with a block or an exception.
      return future.get();
    }
    promise.emplace();
    blocks_[file].future = promise->get_future().share();
    unpacked_.push_back(file);
  }
  try {
    auto made = unpack(*open(file), packings_[file], limits_);
    promise->set_value(made);
    const std::lock_guard lock(mutex_);
    if (const auto mine = blocks_.find(file); mine != blocks_.end())
      mine->second.bytes = made->bytes().size();
    forget_old_blocks();
    return made;
  } catch (...) {
    promise->set_exception(std::current_exception());
    if (!is_damaged(std::current_exception())) {
      const std::lock_guard lock(mutex_);
      blocks_.erase(file);
      unpacked_.remove(file);
    }
    throw;
  }
}

Scanner Shards::scanner(size_t file) const {
  if (is_packed(file)) return {block(file), limits_.memory_bytes};
  return {open(file), limits_.memory_bytes};
}

std::span<const std::byte> Shards::read(size_t file, uint64_t offset, uint64_t bytes,
                                        Record& record) const {
  if (!is_packed(file)) return copy(file, offset, bytes, 0, record);
  auto shared = block(file);
  const auto all = shared->bytes();
  if (offset > all.size() || bytes > all.size() - offset)
    throw Damage(fmt::format("{} bytes should follow byte {}, but the data ends at byte {}", bytes,
                             offset, all.size()));
  record.keeps = std::move(shared);
  return all.subspan(offset, bytes);
}

BytesAndRoom Shards::read_with_room(size_t file, uint64_t offset, uint64_t bytes, uint64_t more,
                                    Record& record) const {
  if (is_packed(file)) {
    const auto view = read(file, offset, bytes, record);
    return {view, record.room(more)};
  }
  const uint64_t aligned = (bytes + 15) / 16 * 16;
  const auto memory = copy(file, offset, bytes, aligned - bytes + more, record);
  return {memory.first(bytes), memory.subspan(aligned)};
}

std::span<std::byte> Shards::copy(size_t file, uint64_t offset, uint64_t bytes, uint64_t more,
                                  Record& record) const {
  require_memory(bytes, limits_);
  if (is_packed(file)) {
    const auto from = read(file, offset, bytes, record);
    const auto room = record.room(bytes + more);
    if (bytes > 0) std::memcpy(room.data(), from.data(), bytes);
    record.keeps.reset();
    return room;
  }
  const auto opened = open(file);
  if (offset > opened->size() || bytes > opened->size() - offset)
    throw Damage(fmt::format("{} bytes should follow byte {}, but the file ends at byte {}", bytes,
                             offset, opened->size()));
  const auto room = record.room(bytes + more);
  opened->read(offset, room.first(bytes));
  return room;
}

}  // namespace trireme::records
