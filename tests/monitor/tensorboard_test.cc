#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <trireme/monitor/tfrecord.h>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "helpers.h"

namespace trireme::monitor::tensorboard_test {
namespace {

// One field of a protobuf message: `number` for varints and fixed numbers, `bytes` for nested
// bytes.
struct Field {
  int id = 0;
  uint64_t number = 0;
  std::string bytes;
};

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::vector<Field> decode(std::string_view bytes) {
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(0));
      bytes.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  const auto take = [&](size_t count) {
    const auto part = bytes.substr(0, count);
    EXPECT_EQ(part.size(), count);
    bytes.remove_prefix(part.size());
    return part;
  };
  std::vector<Field> fields;
  while (!bytes.empty()) {
    const uint64_t key = varint();
    Field field{.id = static_cast<int>(key >> 3)};
    switch (key & 7) {
      case 0: field.number = varint(); break;
      case 1: field.number = little_endian(take(8)); break;
      case 2: field.bytes = take(varint()); break;
      case 5: field.number = little_endian(take(4)); break;
      default: ADD_FAILURE() << "wire type " << (key & 7);
    }
    fields.push_back(field);
  }
  return fields;
}

struct DecodedEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  bool session_start = false;
  std::map<std::string, float> scalars;
};

DecodedEvent decode_event(std::string_view bytes) {
  DecodedEvent event;
  for (const Field& field : decode(bytes)) {
    if (field.id == 1) event.wall_time = std::bit_cast<double>(field.number);
    if (field.id == 2) event.step = static_cast<int64_t>(field.number);
    if (field.id == 3) event.file_version = field.bytes;
    if (field.id == 7) event.session_start = decode(field.bytes).at(0).number == 1;
    if (field.id != 5) continue;
    for (const Field& value : decode(field.bytes)) {
      const auto parts = decode(value.bytes);
      event.scalars[parts.at(0).bytes] =
          std::bit_cast<float>(static_cast<uint32_t>(parts.at(1).number));
    }
  }
  return event;
}

std::vector<DecodedEvent> read_events(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path());
  EXPECT_EQ(files.size(), 1u);
  EXPECT_THAT(files.at(0).filename().string(),
              testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\..+\\." +
                                    std::to_string(::getpid())));
  std::ifstream in(files.at(0), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::vector<DecodedEvent> events;
  for (std::string_view rest = bytes; !rest.empty();) {
    const uint64_t length = little_endian(rest.substr(0, 8));
    EXPECT_EQ(little_endian(rest.substr(8, 4)), masked_crc32c(rest.substr(0, 8)));
    const auto data = rest.substr(12, length);
    EXPECT_EQ(data.size(), length);
    EXPECT_EQ(little_endian(rest.substr(12 + length, 4)), masked_crc32c(data));
    events.push_back(decode_event(data));
    rest.remove_prefix(16 + length);
  }
  return events;
}

// Published check values, from the CRC catalogue and from RFC 3720, B.4.
TEST(TfRecord, ChecksumsMatchPublishedValues) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(TfRecord, FramesLengthAndDataWithTheirChecksums) {
  const std::string record = tfrecord("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(little_endian(record.substr(0, 8)), 3u);
  EXPECT_EQ(record.substr(12, 3), "abc");
}

TEST(TensorBoard, EveryScalarIsInTheFileWhenTheCallReturns) {
  const TemporaryFolder folder;
  const auto sink = make_tensorboard(folder.path() / "events");
  sink->on_start({.first_step = 300});
  sink->on_step({.step = 301,
                 .epoch = 3,
                 .loss = 0.5,
                 .learning_rate = 0.25,
                 .gradient_norm = 2,
                 .samples = 64,
                 .seconds = 0.5,
                 .waited = 0.125});
  sink->on_step({.step = 302, .epoch = 3, .loss = 0.5, .learning_rate = 0.25, .samples = 64});
  sink->on_eval({.step = 302, .epoch = 3, .loss = 0.75, .accuracy = 0.875});
  sink->on_scalars({302, {{"input/threads", 3}, {"input/prefetch", 6}}});

  const auto events = read_events(folder.path() / "events");
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.6e9);
  EXPECT_TRUE(events[1].session_start);
  EXPECT_EQ(events[1].step, 301);
  EXPECT_EQ(events[2].step, 301);
  using Scalars = std::map<std::string, float>;
  EXPECT_EQ(events[2].scalars, (Scalars{{"train/loss", 0.5f},
                                        {"train/learning_rate", 0.25f},
                                        {"train/samples_per_second", 128.f},
                                        {"train/gradient_norm", 2.f},
                                        {"input/waited_share", 0.25f}}));
  EXPECT_EQ(events[3].scalars, (Scalars{{"train/loss", 0.5f}, {"train/learning_rate", 0.25f}}));
  EXPECT_EQ(events[4].scalars, (Scalars{{"eval/loss", 0.75f}, {"eval/accuracy", 0.875f}}));
  EXPECT_EQ(events[5].step, 302);
  EXPECT_EQ(events[5].scalars, (Scalars{{"input/threads", 3.f}, {"input/prefetch", 6.f}}));
}

TEST(TensorBoard, LossesThatAreNotNumbersAreKept) {
  const TemporaryFolder folder;
  make_tensorboard(folder.path())
      ->on_step({.step = 1, .loss = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_TRUE(std::isnan(read_events(folder.path()).at(1).scalars.at("train/loss")));
}

TEST(TensorBoard, AFolderThatCannotBeMadeIsAnIoErrorNamingIt) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "plain") << "x";
  try {
    make_tensorboard(folder.path() / "plain" / "events");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), testing::HasSubstr("plain/events"));
  }
}

}  // namespace
}  // namespace trireme::monitor::tensorboard_test
