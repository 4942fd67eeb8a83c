#include <sys/uio.h>
#include <trireme/comm/host/peer_memory.h>
#include <unistd.h>
#include <random>

namespace trireme::comm {

MemoryProbe probe_of_this_process(const uint64_t& number) {
  return {::getpid(), reinterpret_cast<uint64_t>(&number), number};
}

uint64_t number_for_probes() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

bool can_read(const MemoryProbe& probe) {
  uint64_t number = ~probe.number;
  return read_memory(probe.process, probe.address, &number, sizeof number) &&
         number == probe.number;
}

bool read_memory(int64_t process, uint64_t address, void* to, size_t bytes) {
  auto* place = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const iovec mine{place, bytes}, theirs{reinterpret_cast<void*>(address), bytes};
    const ssize_t read = ::process_vm_readv(static_cast<pid_t>(process), &mine, 1, &theirs, 1, 0);
    if (read <= 0) return false;
    place += read;
    address += static_cast<uint64_t>(read);
    bytes -= static_cast<size_t>(read);
  }
  return true;
}

}  // namespace trireme::comm
