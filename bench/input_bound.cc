// The bound of the part `input`: what a loop without any library around it takes from bytes, or
// from JPEG files, to shuffled batches of normalised float32.
//
//   input_bound memory FOLDER SECONDS BATCH THREADS  CIFAR-10's binary files, which are in memory
//   input_bound files FOLDER SECONDS BATCH THREADS   JPEG files in folders 0, 1, ..., opened and
//                                                    read in each epoch; with random flips
//   input_bound bytes FOLDER SECONDS BATCH THREADS   the same, with the files' bytes in memory
//
// Each thread makes every THREADS-th batch, and overwrites it two batches later. Prints one JSON
// object: `samples_per_second`, and `mean`, that of all numbers of an epoch, to compare the result
// with another loop's.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <trireme/base/clones.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

// Needs <cstdio>.
#include <jpeglib.h>

namespace {

namespace fs = std::filesystem;

constexpr size_t kPlane = 32 * 32, kPixels = 3 * kPlane;
constexpr size_t kCifarRecord = 1 + kPixels;
constexpr float kMean[3] = {0.4914F, 0.4822F, 0.4465F};
constexpr float kDeviation[3] = {0.247F, 0.2435F, 0.2616F};

[[noreturn]] void stop(const std::string& text) {
  std::fprintf(stderr, "input_bound: %s\n", text.c_str());
  std::exit(2);
}

// byte * factor + offset is the normalised number.
TRIREME_INLINE void scale_plane(const uint8_t* __restrict bytes, int channel,
                                float* __restrict out) {
  const float factor = 1 / (255 * kDeviation[channel]);
  const float offset = -kMean[channel] / kDeviation[channel];
  for (size_t i = 0; i < kPlane; ++i) out[i] = static_cast<float>(bytes[i]) * factor + offset;
}

TRIREME_CLONES void normalise_planes(const uint8_t* pixels, float* out) {
  for (int c = 0; c < 3; ++c) scale_plane(pixels + c * kPlane, c, out + c * kPlane);
}

// The same for pixels of three bytes, some of them mirrored.
TRIREME_CLONES void normalise_pixels(const uint8_t* __restrict pixels, bool flip, float* out) {
  alignas(64) uint8_t planes[3][kPlane];
  for (size_t i = 0; i < kPlane; ++i)
    for (size_t c = 0; c < 3; ++c) planes[c][i] = pixels[3 * i + c];
  if (flip)
    for (auto& plane : planes)
      for (size_t y = 0; y < 32; ++y) std::reverse(plane + 32 * y, plane + 32 * (y + 1));
  for (int c = 0; c < 3; ++c) scale_plane(planes[c], c, out + c * kPlane);
}

// ---- Samples ----

std::vector<uint8_t> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) stop("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<fs::path> sorted_files(const fs::path& folder, std::string_view end) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == end) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) stop("no files *" + std::string(end) + " in " + folder.string());
  return files;
}

struct Bytes {
  explicit Bytes(const fs::path& folder) {
    for (const fs::path& path : sorted_files(folder, ".bin")) {
      const std::vector<uint8_t> content = read_file(path);
      records.insert(records.end(), content.begin(), content.end());
    }
  }
  size_t size() const { return records.size() / kCifarRecord; }

  // The work of one thread.
  struct Worker {
    const Bytes& all;
    int64_t write(size_t sample, bool, float* out) {
      const uint8_t* record = all.records.data() + sample * kCifarRecord;
      normalise_planes(record + 1, out);
      return record[0];
    }
  };
  std::vector<uint8_t> records;
};

struct Jpegs {
  Jpegs(const fs::path& folder, bool in_memory) {
    for (const fs::path& path : sorted_files(folder, ".jpg")) {
      files.push_back(path.string());
      labels.push_back(std::stoll(path.parent_path().filename()));
      if (in_memory) contents.push_back(read_file(path));
    }
  }
  size_t size() const { return files.size(); }

  class Worker {
   public:
    explicit Worker(const Jpegs& all) : all_(all) {
      info_.err = jpeg_std_error(&errors_);  // An error ends the programme.
      jpeg_create_decompress(&info_);
    }
    ~Worker() { jpeg_destroy_decompress(&info_); }
    Worker(const Worker&) = delete;

    int64_t write(size_t sample, bool flip, float* out) {
      if (all_.contents.empty()) {
        read(all_.files[sample].c_str());
        decode(content_.data(), bytes_);
      } else {
        decode(all_.contents[sample].data(), all_.contents[sample].size());
      }
      normalise_pixels(pixels_, flip, out);
      return all_.labels[sample];
    }

   private:
    void read(const char* path) {
      const int file = open(path, O_RDONLY | O_CLOEXEC);
      struct stat facts;
      if (file < 0 || fstat(file, &facts) != 0) stop(std::string("cannot read ") + path);
      bytes_ = static_cast<size_t>(facts.st_size);
      if (content_.size() < bytes_) content_.resize(bytes_);
      if (::read(file, content_.data(), bytes_) != facts.st_size)
        stop(std::string("cannot read ") + path);
      close(file);
    }

    void decode(const uint8_t* content, size_t bytes) {
      jpeg_mem_src(&info_, content, bytes);
      jpeg_read_header(&info_, TRUE);
      info_.out_color_space = JCS_RGB;
      if (info_.image_width != 32 || info_.image_height != 32) stop("an image is not 32x32");
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < 32) {
        JSAMPROW rows[32];
        for (unsigned y = 0; y < 32; ++y) rows[y] = pixels_ + 96 * y;
        jpeg_read_scanlines(&info_, rows + info_.output_scanline, 32 - info_.output_scanline);
      }
      jpeg_finish_decompress(&info_);
    }

    const Jpegs& all_;
    jpeg_decompress_struct info_{};
    jpeg_error_mgr errors_{};
    std::vector<uint8_t> content_;
    size_t bytes_ = 0;
    alignas(64) uint8_t pixels_[kPixels];
  };

  std::vector<std::string> files;
  std::vector<int64_t> labels;
  std::vector<std::vector<uint8_t>> contents;
};

// ---- Batches ----

struct Batch {
  explicit Batch(size_t samples) : labels(samples) {
    constexpr size_t kHugePage = 2 << 20;
    const size_t bytes = samples * kPixels * sizeof(float);
    const size_t room = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    numbers = static_cast<float*>(std::aligned_alloc(kHugePage, room));
    if (!numbers) stop("there is no memory for a batch");
    madvise(numbers, room, MADV_HUGEPAGE);
    std::fill_n(numbers, samples * kPixels, 0.0F);
  }
  float* numbers = nullptr;
  std::vector<int64_t> labels;
};

struct Plan {
  size_t batch = 0, threads = 0;
  double seconds = 0;
};

// The epochs as one thread sees them: it shuffles all samples as the others do, and makes its part
// of the batches. Returns the samples that it has made.
template <typename Data>
size_t run_thread(const Data& data, const Plan& plan, size_t thread,
                  const std::atomic<bool>& done) {
  typename Data::Worker worker{data};
  Batch batches[2] = {Batch(plan.batch), Batch(plan.batch)};
  std::vector<uint32_t> order(data.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 shuffles(1), flips(thread);
  size_t samples = 0, number = 0;
  uint64_t bits = 0, bits_left = 0;
  while (true) {
    std::shuffle(order.begin(), order.end(), shuffles);
    const size_t batches_of_epoch = data.size() / plan.batch;
    for (size_t at = 0; at < batches_of_epoch; ++at) {
      if (done.load(std::memory_order_relaxed)) return samples;
      if (number++ % plan.threads != thread) continue;
      Batch& batch = batches[number / plan.threads % 2];
      for (size_t i = 0; i < plan.batch; ++i, bits >>= 1) {
        if (bits_left-- == 0) bits = flips(), bits_left = 63;
        batch.labels[i] =
            worker.write(order[at * plan.batch + i], bits & 1, batch.numbers + i * kPixels);
      }
      samples += plan.batch;
    }
  }
}

template <typename Data>
double mean_of(const Data& data) {
  typename Data::Worker worker{data};
  std::vector<float> row(kPixels);
  double sum = 0;
  for (size_t i = 0; i < data.size(); ++i) {
    worker.write(i, false, row.data());
    sum = std::accumulate(row.begin(), row.end(), sum);
  }
  return sum / static_cast<double>(data.size() * kPixels);
}

template <typename Data>
void measure(const Data& data, const Plan& plan) {
  if (data.size() < plan.batch) stop("there are fewer samples than in a batch");
  const double mean = mean_of(data);  // It also takes the page faults.
  std::atomic<bool> done = false;
  std::vector<size_t> samples(plan.threads);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < plan.threads; ++i)
    threads.emplace_back([&, i] { samples[i] = run_thread(data, plan, i, done); });
  std::this_thread::sleep_for(std::chrono::duration<double>(plan.seconds));
  done = true;
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  const size_t all = std::accumulate(samples.begin(), samples.end(), size_t{0});
  std::printf("{\"samples_per_second\": %.1f, \"mean\": %.6f}\n",
              static_cast<double>(all) / taken.count(), mean);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view kind = argc == 6 ? argv[1] : "";
  const Plan plan = argc == 6
                        ? Plan{std::strtoull(argv[4], nullptr, 10),
                               std::strtoull(argv[5], nullptr, 10), std::strtod(argv[3], nullptr)}
                        : Plan{};
  if (plan.batch < 1 || plan.threads < 1 || !(plan.seconds > 0))
    stop("usage: input_bound memory|files|bytes FOLDER SECONDS BATCH THREADS");
  if (kind == "memory")
    measure(Bytes(argv[2]), plan);
  else if (kind == "files" || kind == "bytes")
    measure(Jpegs(argv[2], kind == "bytes"), plan);
  else
    stop("the kind is memory, files or bytes");
}
