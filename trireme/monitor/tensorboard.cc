#include <fmt/format.h>
#include <trireme/base/host_name.h>
#include <trireme/base/unix_time.h>
#include <trireme/monitor/append_file.h>
#include <trireme/monitor/sink.h>
#include <trireme/monitor/tfrecord.h>
#include <unistd.h>
#include <bit>

namespace trireme::monitor {
namespace {

// TensorBoard's Event message, encoded by hand in two dozen lines. A dependency on protobuf would
// burden every user, and its headers clash with the old ones that LibTorch carries.
class Protobuf {
 public:
  Protobuf& varint_field(int number, uint64_t value) {
    varint(static_cast<uint64_t>(number) << 3 | 0);
    varint(value);
    return *this;
  }
  Protobuf& double_field(int number, double value) {
    return fixed(number, 1, std::bit_cast<uint64_t>(value), 8);
  }
  Protobuf& float_field(int number, float value) {
    return fixed(number, 5, std::bit_cast<uint32_t>(value), 4);
  }
  Protobuf& bytes_field(int number, std::string_view value) {
    varint(static_cast<uint64_t>(number) << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  Protobuf& fixed(int number, int wire_type, uint64_t value, int size) {
    varint(static_cast<uint64_t>(number) << 3 | wire_type);
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  std::string bytes_;
};

// The field numbers of tensorboard/compat/proto/event.proto and summary.proto.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimpleValue = 2, kSessionLogStatus = 1,
              kSessionStart = 1;

std::filesystem::path event_file(const std::filesystem::path& folder) {
  return folder / fmt::format("events.out.tfevents.{}.{}.{}", static_cast<int64_t>(unix_seconds()),
                              own_host_name(), ::getpid());
}

class TensorBoard : public Sink {
 public:
  explicit TensorBoard(const std::filesystem::path& folder) : file_(event_file(folder)) {
    write(Protobuf()
              .double_field(kEventWallTime, unix_seconds())
              .bytes_field(kEventFileVersion, "brain.Event:2"));
  }

  // A session that starts at a step makes TensorBoard ignore the values of older files in the
  // folder for that step and later ones.
  void on_start(const RunStart& start) override {
    const Protobuf session = Protobuf().varint_field(kSessionLogStatus, kSessionStart);
    write(event(start.first_step + 1).bytes_field(kEventSessionLog, session.bytes()));
  }
  void on_step(const StepRecord& step) override {
    Protobuf values;
    add(values, "train/loss", step.loss);
    add(values, "train/learning_rate", step.learning_rate);
    if (step.seconds > 0)
      add(values, "train/samples_per_second", static_cast<double>(step.samples) / step.seconds);
    if (step.seconds > 0) add(values, "input/waited_share", step.waited / step.seconds);
    if (!(step.gradient_norm < 0)) add(values, "train/gradient_norm", step.gradient_norm);
    write(event(step.step).bytes_field(kEventSummary, values.bytes()));
  }
  void on_eval(const EvalRecord& eval) override {
    Protobuf values;
    add(values, "eval/loss", eval.loss);
    add(values, "eval/accuracy", eval.accuracy);
    for (const auto& [name, value] : eval.metrics) add(values, "eval/" + name, value);
    write(event(eval.step).bytes_field(kEventSummary, values.bytes()));
  }
  void on_scalars(const ScalarRecord& scalars) override {
    Protobuf values;
    for (const auto& [name, value] : scalars.values) add(values, name, value);
    write(event(scalars.step).bytes_field(kEventSummary, values.bytes()));
  }

 private:
  static Protobuf event(int64_t step) {
    return Protobuf()
        .double_field(kEventWallTime, unix_seconds())
        .varint_field(kEventStep, static_cast<uint64_t>(step));
  }
  static void add(Protobuf& values, std::string_view tag, double value) {
    const Protobuf scalar = Protobuf()
                                .bytes_field(kValueTag, tag)
                                .float_field(kValueSimpleValue, static_cast<float>(value));
    values.bytes_field(kSummaryValue, scalar.bytes());
  }
  void write(const Protobuf& event) { file_.append(tfrecord(event.bytes())); }

  AppendFile file_;
};

}  // namespace

std::unique_ptr<Sink> make_tensorboard(const std::filesystem::path& folder) {
  return std::make_unique<TensorBoard>(folder);
}

}  // namespace trireme::monitor
