#include <trireme/records/mapped_file.h>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <trireme/records/damage.h>
#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace trireme::records {
namespace {

thread_local LateChecks* late_checks = nullptr;

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : MappedFile(DataFile(path)) {}

MappedFile::MappedFile(DataFile file) : file_(std::move(file)) { map(); }

MappedFile::MappedFile(DataFile file, const UnpackLimits& limits) : file_(std::move(file)) {
  if (const Packing packing = packing_of(file_); packing != Packing::none) {
    unpacked_ = unpack(file_, packing, limits);
    bytes_ = unpacked_->bytes();
  } else {
    map();
  }
}

void MappedFile::map() {
  if (file_.size() == 0) return;
  void* const memory = ::mmap(nullptr, file_.size(), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (memory == MAP_FAILED)
    throw Damage(fmt::format("it cannot be mapped: {}", std::generic_category().message(errno)),
                 "a file on a local disk, or a larger limit of memory (ulimit -v)", ErrorCode::io);
  bytes_ = {static_cast<const std::byte*>(memory), file_.size()};
  guard_.emplace(bytes_);
}

MappedFile::~MappedFile() {
  guard_.reset();
  if (!unpacked_ && !bytes_.empty())
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

bool MappedFile::has_lost_pages() const { return guard_ && guard_->has_lost_pages(); }

void MappedFile::check_content() const {
  if (unpacked_) return;
  struct stat status {};
  if (::fstat(file_.descriptor(), &status) != 0)
    throw Damage(fmt::format("it cannot be examined: {}", std::generic_category().message(errno)),
                 "check the file and its disk", ErrorCode::io);
  if (static_cast<uint64_t>(status.st_size) < bytes_.size())
    throw Damage(fmt::format("the file had {} bytes when it was opened, and now has {}",
                             bytes_.size(), status.st_size),
                 "leave the file alone while it is read");
  if (also_) also_();
}

void MappedFile::check() const {
  if (late_checks)
    late_checks->add(*this);
  else
    check_content();
  if (has_lost_pages())
    throw Damage(
        "a part of the file could not be read, because it had become shorter or its disk "
        "failed",
        "check the file and its disk, then run again");
}

LateChecks::LateChecks() : outer_(std::exchange(late_checks, this)) {}
LateChecks::~LateChecks() { late_checks = outer_; }

void LateChecks::add(const MappedFile& file) {
  if (!files_.empty() && files_.back() == &file) return;
  if (std::ranges::find(files_, &file) == files_.end()) files_.push_back(&file);
}

bool LateChecks::are_whole() const {
  try {
    for (const MappedFile* const file : files_) {
      file->check_content();
      if (file->has_lost_pages()) return false;
    }
    return true;
  } catch (const Damage&) {
    return false;
  }
}

}  // namespace trireme::records
