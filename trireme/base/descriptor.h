// A file descriptor with one owner.
#pragma once
#include <unistd.h>
#include <utility>

namespace trireme {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }
  void reset() { Descriptor{release()}; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_;
};

}  // namespace trireme
