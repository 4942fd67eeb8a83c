// Loops over parts of Trireme that no command measures alone, for bench/run.py:
//
//   bench_input_loops records FORMAT PATH SECONDS none|full FIELD
//       copies this field of each record, or all fields (*), into the memory of a batch
//       (record_loop.h), in the order of the file or shuffled
//   bench_input_loops order SAMPLES SECONDS
//       the order data.shuffle: index of so many samples; prints one JSON object: `index_s`, the
//       seconds of an index; `seek_s`, those until a loader has the first batch of another place;
//       `resident_bytes`, the memory that order and loader have added
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/data/loader.h>
#include <trireme/records/mapped_file.h>
#include <trireme/records/open.h>
#include <unistd.h>
#include <algorithm>
#include <fstream>
#include <numeric>
#include <string>

#include "record_loop.h"

namespace {

using namespace trireme;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void put(const records::Field& field, bench::BatchMemory& memory) {
  memory.put(field.bytes.data(), field.bytes.size());
}

void measure_records(const records::OpenOptions& options, double seconds, plan::OrderKind kind,
                     const std::string& name) {
  const auto reader = records::open_records(options);
  const plan::SampleOrder order(reader->size(), /*seed=*/1, kind);
  records::Record record;
  std::vector<int64_t> indices(256);
  bench::run_epochs(seconds, [&](bench::BatchMemory& memory, int64_t epoch) {
    for (int64_t first = 0; first < reader->size(); first += std::ssize(indices)) {
      const std::span part(indices.data(), static_cast<size_t>(std::min<int64_t>(
                                               std::ssize(indices), reader->size() - first)));
      order.fill(epoch, first, part);
      const records::LateChecks checks;  // As a training copies the records of a batch.
      for (const int64_t& index : part) {
        if (&index != &part.back()) reader->warm((&index)[1]);  // As a training does.
        reader->read(index, record);
        if (name == "*")
          for (const records::Field& field : record.fields) put(field, memory);
        else
          put(record.at(name), memory);
        memory.end_record();
      }
      if (!checks.are_whole())
        throw Error(ErrorCode::corrupt, "bench", "a file has become shorter", "leave it alone");
    }
  });
}

// Samples without content.
class Nothing : public Source {
 public:
  explicit Nothing(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Example get(const Draw& draw) const override {
    const Example batch = get_batch(Draws({draw.index}, draw.epoch));
    return {batch.data[0], batch.target[0]};
  }
  Example get_batch(const Draws& draws) const override {
    const auto samples = static_cast<int64_t>(draws.indices.size());
    return {at::zeros({samples, 1}), at::zeros({samples}, at::kLong)};
  }

 private:
  int64_t size_;
};

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

double seconds_of_index(const plan::SampleOrder& order, double seconds) {
  std::vector<int64_t> indices(256);
  int64_t count = 0;
  const double begin = now();
  double taken = 0;
  for (int64_t epoch = 0; taken < seconds; ++epoch) {
    const int64_t first = order.samples() / 3 * (epoch % 3);
    for (int64_t batch = 0; batch < 1000; ++batch, count += std::ssize(indices))
      order.fill(epoch, first + batch * std::ssize(indices), indices);
    taken = now() - begin;
  }
  return taken / static_cast<double>(count);
}

// The median over many places, each in an epoch of its own.
double seconds_of_seek(Loader& loader, int64_t samples) {
  std::vector<double> seconds;
  for (int64_t epoch = 1; epoch <= 101; ++epoch) {
    const double begin = now();
    loader.seek({epoch, samples / 2 + 1000 * epoch});
    loader.next();
    seconds.push_back(now() - begin);
  }
  std::ranges::nth_element(seconds, seconds.begin() + 50);
  return seconds[50];
}

void measure_order(int64_t samples, double seconds) {
  LoaderOptions options;
  options.batch = 256;
  options.shuffle = plan::OrderKind::index;
  options.threads = 1;
  options.prefetch = 2;
  {
    Loader small(std::make_shared<Nothing>(1000), options);  // Its threads and tensors count not.
    small.next();
  }
  const int64_t before = resident_bytes();
  const plan::SampleOrder order(samples, options.seed, options.shuffle);
  Loader loader(std::make_shared<Nothing>(samples), options);
  loader.next();
  const double index = seconds_of_index(order, seconds);
  const double seek = seconds_of_seek(loader, samples);
  std::printf("{\"index_s\": %.12f, \"seek_s\": %.9f, \"resident_bytes\": %lld}\n", index, seek,
              static_cast<long long>(resident_bytes() - before));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 6 && words[0] == "records") {
      records::OpenOptions options;
      options.format = words[1];
      options.path = words[2];
      if (words[1] == "tokens") options.dtype = "uint16", options.block = 1024;
      // Two row groups of the file, so that each epoch unpacks them anew.
      if (words[1] == "parquet") options.memory_bytes = 14 << 20;
      measure_records(options, std::stod(words[3]), plan::order_kind(words[4]), words[5]);
    } else if (words.size() == 3 && words[0] == "order") {
      measure_order(std::stoll(words[1]), std::stod(words[2]));
    } else {
      fmt::print(stderr, "usage: see the first lines of bench/input_loops.cc\n");
      return 2;
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_input_loops: {}\n", error.what());
    return 1;
  }
  return 0;
}
