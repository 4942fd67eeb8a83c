#include <trireme/records/shards.h>

#include <fmt/format.h>
#include <trireme/base/units.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <cstring>

namespace trireme::records {
namespace {

constexpr size_t kMostOpenFiles = 128;

// Files on a server are not opened to see how they begin.
Packing packing_of_name(std::string_view name) {
  if (name.ends_with(".gz") || name.ends_with(".tgz")) return Packing::gzip;
  return name.ends_with(".zst") ? Packing::zstd : Packing::none;
}

}  // namespace

Shards::Shards(DataFiles files, UnpackLimits limits, std::shared_ptr<BlockMemory> blocks,
               bool may_be_packed)
    : files_(std::move(files)),
      limits_(std::move(limits)),
      packings_(files_.names.size(), Packing::none),
      open_(files_.names.size()),
      blocks_(std::move(blocks)) {
  if (!may_be_packed) return;
  for (size_t file = 0; file < count() && is_remote(); ++file)
    packings_[file] = packing_of_name(name(file));
  for (size_t file = 0; file < count() && !is_remote(); ++file)
    with_place([&] { return path(file).string(); },
               [&] { packings_[file] = packing_of(DataFile(path(file))); });
  if (std::ranges::any_of(packings_, [](Packing each) { return each != Packing::none; }))
    blocks_.expect_blocks();
}

std::vector<FileIdentity> Shards::identities() const {
  std::vector<FileIdentity> all;
  for (size_t file = 0; file < count(); ++file) all.push_back(identity(file));
  return all;
}

FileIdentity Shards::identity(size_t file) const {
  FileIdentity identity = with_place(
      [&] { return path(file).string(); },
      [&] { return is_remote() ? open(file)->identity() : files_.open(file).identity(); });
  identity.name = name(file);
  return identity;
}

void Shards::expect(std::span<const FileIdentity> identities) {
  sizes_.clear();
  for (const FileIdentity& identity : identities) sizes_.push_back(identity.bytes);
  if (is_remote()) files_.remote->expect(identities);
}

void Shards::announce(std::span<const size_t> files) const {
  if (is_remote()) files_.remote->announce(files);
}

void Shards::release(size_t file) const {
  if (is_remote()) files_.remote->release(file);
}

int64_t Shards::reads_ahead(int64_t records) const {
  return is_remote() ? 2 * (records / static_cast<int64_t>(count()) + 1) : 0;
}

// Closes those that nobody reads, so that they can make room for others. Needs the mutex.
void Shards::close_idle() const {
  std::erase_if(opened_, [&](size_t file) {
    if (open_[file].use_count() > 1) return false;
    open_[file].reset();
    return true;
  });
}

// A fetch takes long, so other threads read other files meanwhile.
std::shared_ptr<const DataFile> Shards::open_remote(size_t file) const {
  {
    const std::lock_guard lock(mutex_);
    if (open_[file]) return open_[file];
    close_idle();
  }
  auto opened = std::make_shared<const DataFile>(files_.open(file));
  const std::lock_guard lock(mutex_);
  if (open_[file]) return open_[file];
  opened_.push_back(file);
  return open_[file] = std::move(opened);
}

std::shared_ptr<const DataFile> Shards::open(size_t file) const {
  if (is_remote()) return open_remote(file);
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

Shards::SharedBlock Shards::block(size_t file) const {
  return blocks_.get(
      file, [&] { return unpack(*open(file), packings_[file], limits_); },
      [](const Block& block) { return static_cast<int64_t>(block.bytes().size()); });
}

Scanner Shards::scanner(size_t file) const {
  if (is_packed(file)) return {block(file), limits_};
  return {open(file), limits_};
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
  limits_.require_memory(bytes);
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
