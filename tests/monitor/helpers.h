// Helpers of the monitor's tests.
#pragma once
#include <trireme/monitor/event_json.h>
#include <trireme/monitor/sink.h>
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::monitor {

// A sink that keeps all events.
class RecordingSink : public EventSink {
 public:
  void take(const Event& event) override { events.push_back(event); }
  std::vector<Event> events;
};

// A stream whose text can be read at any time.
class TextStream {
 public:
  TextStream() : file_(::open_memstream(&text_, &size_)) {}
  ~TextStream() {
    std::fclose(file_);
    std::free(text_);
  }
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

// A new folder. It is removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "trireme-monitor-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace trireme::monitor
