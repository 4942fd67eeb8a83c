#include <sys/uio.h>
#include <trireme/comm/host/peer_memory.h>
#include <unistd.h>
#include <array>
#include <random>

namespace trireme::comm {

MemoryProbe probe_of_this_process(const uint64_t& number) {
  return {::getpid(), reinterpret_cast<uint64_t>(&number), number};
}

uint64_t number_for_probes() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

bool can_read(const MemoryProbe& probe) { return read_memory(probe, 0, nullptr, 0); }

// Each call reads the number too, so that all its bytes come from the right process.
bool read_memory(const MemoryProbe& probe, uint64_t address, void* to, size_t bytes) {
  auto* place = static_cast<std::byte*>(to);
  do {
    uint64_t number = ~probe.number;
    const std::array<iovec, 2> mine{iovec{&number, sizeof number}, iovec{place, bytes}};
    const std::array<iovec, 2> theirs{iovec{reinterpret_cast<void*>(probe.address), sizeof number},
                                      iovec{reinterpret_cast<void*>(address), bytes}};
    const ssize_t read = ::process_vm_readv(static_cast<pid_t>(probe.process), mine.data(),
                                            mine.size(), theirs.data(), theirs.size(), 0);
    const ssize_t copied = read - static_cast<ssize_t>(sizeof number);
    if (copied < 0 || number != probe.number || (copied == 0 && bytes > 0)) return false;
    place += copied;
    address += static_cast<uint64_t>(copied);
    bytes -= static_cast<size_t>(copied);
  } while (bytes > 0);
  return true;
}

}  // namespace trireme::comm
