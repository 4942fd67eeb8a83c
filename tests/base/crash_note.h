// Says at a crash what the process was doing, so that it can be done again. Undefined behaviour
// that a sanitizer finds fails the test.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>

// AddressSanitizer has it.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*)());
// The sanitizer of undefined behaviour calls it before it prints its report, and may go on then.
extern "C" [[gnu::weak]] void __ubsan_on_report();

namespace trireme {

// The text is printed if the process crashes while the object lives, of which there is one at a
// time.
class CrashNote {
 public:
  explicit CrashNote(std::string_view text) {
    static const bool is_installed = [] {
      for (size_t i = 0; i < kSignals.size(); ++i)
        before()[i] = std::signal(kSignals[i], on_signal);
      if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(print);
      return true;
    }();
    static_cast<void>(is_installed);
    std::copy_n(text.begin(), std::min(text.size(), kMostBytes), note().begin());
    bytes() = std::min(text.size(), kMostBytes);
  }
  ~CrashNote() {
    bytes() = 0;
    EXPECT_FALSE(has_undefined()) << "a sanitizer has reported undefined behaviour";
    has_undefined() = false;
  }
  CrashNote(const CrashNote&) = delete;

  static void on_undefined() {
    if (bytes() == 0) return;
    print();
    has_undefined() = true;
  }

 private:
  using Handler = void (*)(int);
  static constexpr size_t kMostBytes = 256;
  // Maps of files have a handler of SIGBUS.
  static constexpr std::array<int, 4> kSignals{SIGSEGV, SIGABRT, SIGFPE, SIGILL};

  static std::array<char, kMostBytes>& note() {
    static std::array<char, kMostBytes> text{};
    return text;
  }
  static volatile size_t& bytes() {
    static volatile size_t count = 0;
    return count;
  }
  static volatile bool& has_undefined() {
    static volatile bool is_set = false;
    return is_set;
  }
  static std::array<Handler, kSignals.size()>& before() {
    static std::array<Handler, kSignals.size()> handlers{};
    return handlers;
  }

  static void print() {
    if (bytes() == 0) return;
    constexpr std::string_view kBefore = "a crash or undefined behaviour at: ";
    static_cast<void>(!::write(STDERR_FILENO, kBefore.data(), kBefore.size()));
    static_cast<void>(!::write(STDERR_FILENO, note().data(), bytes()));
    static_cast<void>(!::write(STDERR_FILENO, "\n", 1));
  }
  // The signal comes again when the handler returns, and then finds the handler from before.
  static void on_signal(int signal) {
    print();
    for (size_t i = 0; i < kSignals.size(); ++i)
      if (kSignals[i] == signal) std::signal(signal, before()[i]);
  }
};

}  // namespace trireme

extern "C" void __ubsan_on_report() { trireme::CrashNote::on_undefined(); }
