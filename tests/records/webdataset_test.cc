#include <trireme/records/formats/tar.h>

#include "files.h"
#include "tar_files.h"

namespace trireme::records {
namespace webdataset_tests {

std::string small_tar() {
  return tar_member("a/0.jpg", "image zero") + tar_member("a/0.cls", "3\n") +
         tar_header("a/deeper/", 0, '5') + tar_member("a/1.JPG", "image one") +
         tar_member("a/1.cls", "5") + tar_member("a/1.seg.png", "mask") + tar_end();
}

std::string error_of_tar(const std::string& content, ErrorCode code) {
  const Folder folder;
  const std::string file = folder.write("x.tar", content);
  const std::string message = message_of(code, [&] { open_path(file); });
  EXPECT_NE(message.find("x.tar"), std::string::npos) << message;
  return message;
}

TEST(WebDataset, MakesRecordsOfMembersWithOneName) {
  const Folder folder;
  folder.write("s-0.tar", small_tar());
  folder.write("s-1.tar.gz", gzipped(small_tar()));
  folder.write("s-2.tar.zst", zstd_packed(small_tar()));
  const auto reader = open_path(folder.path("s-{0..2}.tar*"));
  ASSERT_EQ(reader->size(), 6);
  Record record;
  for (int64_t i = 0; i < 6; ++i) {
    reader->read(i, record);
    EXPECT_EQ(record.at("__key__").text(), i % 2 == 0 ? "a/0" : "a/1");
    EXPECT_EQ(record.at("jpg").text(), i % 2 == 0 ? "image zero" : "image one");
    EXPECT_EQ(numbers_of<int64_t>(record.at("cls")).at(0), i % 2 == 0 ? 3 : 5);
    EXPECT_EQ(reader->label(i), i % 2 == 0 ? 3 : 5);
    EXPECT_EQ(record.find("seg.png") != nullptr, i % 2 == 1);
  }
  EXPECT_EQ(names_of_fields(reader->fields()),
            (std::vector<std::string>{"__key__", "cls", "jpg"}));
  EXPECT_EQ(reader->blocks(), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_NE(reader->place(1).find("s-0.tar, record 1 at byte 2560"), std::string::npos)
      << reader->place(1);
}

TEST(WebDataset, ReadsTheLongNamesOfGnuAndPax) {
  const Folder folder;
  const std::string gnu(150, 'g'), pax(300, 'p');
  const std::string entry = fmt::format(" path={}.txt\n", pax);
  const auto reader = open_path(folder.write(
      "x.tar", tar_member("././@LongLink", gnu + ".txt" + '\0', 'L') + tar_member("cut.bin", "g") +
                   tar_member("pax", std::to_string(entry.size() + 3) + entry, 'x') +
                   tar_member("cut.bin", "p") + tar_end()));
  ASSERT_EQ(reader->size(), 2);
  EXPECT_EQ(text_of(*reader, 0, "__key__"), gnu);
  EXPECT_EQ(text_of(*reader, 1, "__key__"), pax);
  EXPECT_EQ(text_of(*reader, 1, "txt"), "p");
}

TEST(WebDataset, ViewsArrays) {
  const Folder folder;
  std::string numbers;
  for (const float value : {1.5F, 2.5F, 3.5F, 4.5F, 5.5F, 6.5F}) numbers += bytes_of_number(value);
  const auto reader = open_path(folder.write(
      "x.tar", tar_member("0.npy", npy_file("'<f4'", "(2, 3)", numbers)) + tar_end()));
  const Record record = read_record(*reader, 0);
  const Field& field = record.at("npy");
  EXPECT_EQ(field.dtype, plan::DType::float32);
  EXPECT_EQ(std::vector<int64_t>(field.shape.begin(), field.shape.end()),
            (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(numbers_of<float>(field).at(5), 6.5F);
  EXPECT_FALSE(field.encoded);
}

TEST(WebDataset, HasTheLengthsOfAMemberInAnIndexOfTheirOwn) {
  const Folder folder;
  const auto member = [](const std::string& name, size_t count) {
    return tar_member(name,
                      npy_file("'|u1'", fmt::format("({},)", count), std::string(count, '\1')));
  };
  OpenOptions options;
  options.path =
      folder.write("x.tar", member("0.t.npy", 3) + member("0.u.npy", 9) +
                                tar_member("1.cls", "4") + member("1.t.npy", 0) + tar_end());
  EXPECT_EQ(open_records(options)->length(0), std::nullopt);
  options.length_of = "t.npy";
  const auto reader = open_records(options);
  EXPECT_EQ(reader->measured_field(), "t.npy");
  EXPECT_EQ(reader->length(0), 3);
  EXPECT_EQ(reader->length(1), 0);
  EXPECT_EQ(reader->label(1), 4);

  const auto error_of = [&](const std::string& members, ErrorCode code) {
    options.path = folder.write("y.tar", members + tar_end());
    options.make_index_anew = true;
    return message_of(code, [&] { open_records(options); });
  };
  const std::string lacking = error_of(
      member("0.t.npy", 3) + member("1.u.npy", 3) + member("2.t.npy", 1), ErrorCode::corrupt);
  EXPECT_NE(lacking.find("record 1 at byte"), std::string::npos) << lacking;
  EXPECT_NE(lacking.find("no member '.t.npy'"), std::string::npos) << lacking;
  EXPECT_NE(error_of(member("0.u.npy", 3), ErrorCode::invalid_argument)
                .find("no record that is whole has a member '.t.npy'"),
            std::string::npos);
  // A damaged record has no length, whichever member is the damaged one.
  options.keeps_damaged = true;
  const std::string bad = tar_member("1.cls", "cat");
  for (const std::string& second : {bad + member("1.t.npy", 3), member("1.t.npy", 3) + bad,
                                    member("1.t.npy", 3) + member("1.t.npy", 3)}) {
    options.path = folder.write("z.tar", member("0.t.npy", 3) + second + tar_end());
    options.make_index_anew = true;
    const auto damaged = open_records(options);
    EXPECT_EQ(damaged->damaged(), (std::vector<int64_t>{1}));
    EXPECT_EQ(damaged->length(0), 3);
    EXPECT_EQ(damaged->length(1), std::nullopt);
  }
  options.keeps_damaged = false;
  const std::string square = tar_member("0.t.npy", npy_file("'|u1'", "(1, 2)", "ab"));
  EXPECT_NE(error_of(square, ErrorCode::invalid_argument).find("2 dimensions"), std::string::npos);
  options.length_of = "cls";
  EXPECT_NE(error_of(tar_member("0.cls", "1"), ErrorCode::invalid_argument)
                .find("'cls', and only arrays have a length"),
            std::string::npos);
}

TEST(WebDataset, RefusesWhatCouldExecuteOrLeadOutside) {
  const auto refuse = [](const std::string& members, ErrorCode code, std::string_view part) {
    const std::string message = error_of_tar(members + tar_end(), code);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  refuse(tar_member("a.pkl", "x"), ErrorCode::unsupported, "a.pkl");
  refuse(tar_member("a.x.PTH", "x"), ErrorCode::unsupported, "a.x.PTH");
  refuse(tar_member("a.npy", npy_file("'|O'", "(1,)", "x")), ErrorCode::unsupported, "unpickled");
  refuse(tar_member("../a.jpg", "x"), ErrorCode::invalid_argument, "outside");
  refuse(tar_member("/etc/a.jpg", "x"), ErrorCode::invalid_argument, "outside");
  refuse(tar_header("a.jpg", 0, '2', "/etc/passwd"), ErrorCode::unsupported, "link");
  refuse(tar_header("a.jpg", 0, '1', "b.jpg"), ErrorCode::unsupported, "link");
  refuse(tar_header("a.jpg", 0, '3'), ErrorCode::unsupported, "device");
  refuse(tar_member("a.jpg", "x") + tar_member("a.JPG", "x"), ErrorCode::corrupt, "twice");
  refuse(tar_member("a.cls", "cat"), ErrorCode::corrupt, "whole number");
  refuse(tar_header("a.jpg", 8'000'000'000), ErrorCode::corrupt, "cut");
}

TEST(WebDataset, NoticesAShardThatWasCutBetweenMembers) {
  const std::string whole = small_tar();
  const std::string message =
      error_of_tar(whole.substr(0, whole.size() - 1024), ErrorCode::corrupt);
  EXPECT_NE(message.find("no end mark"), std::string::npos) << message;
}

TEST(WebDataset, LimitsTheMembersOfARecord) {
  std::string tar;
  for (int i = 0; i < 100; ++i) tar += tar_member(fmt::format("a.x{}", i), "x");
  EXPECT_NE(error_of_tar(tar + tar_end(), ErrorCode::invalid_argument).find("members"),
            std::string::npos);
}

struct TarInMemory {
  std::string content;
  uint64_t size() const { return content.size(); }
  std::span<const std::byte> at(uint64_t offset, uint64_t bytes) const {
    return std::as_bytes(std::span(content)).subspan(offset, bytes);
  }
};

// Folders are members too, and long names are not.
TEST(WebDataset, LimitsTheMembersOfATarFile) {
  const TarInMemory tar{tar_member("a.txt", "x") + tar_header("folder/", 0, '5') +
                        tar_member("././@LongLink", std::string(150, 'b') + '\0', 'L') +
                        tar_member("b", "y") + tar_member("c.txt", "z") + tar_end()};
  const auto files_within = [&](uint64_t most) {
    TarWalk walk(most);
    TarHeader member;
    int files = 0;
    while (walk.next(tar, member)) ++files;
    return files;
  };
  EXPECT_EQ(files_within(4), 3);
  EXPECT_EQ(message_of(ErrorCode::invalid_argument,
                       [&] { with_place([] { return "x.tar"; }, [&] { files_within(3); }); }),
            "[data] x.tar: the tar file has more than 3 members; try: smaller shards");
  EXPECT_EQ(kMostTarMembers, 16'000'000U);  // docs/input.md states it.
}

TEST(WebDataset, NamesARecordThatIsLargerThanTheMemory) {
  const Folder folder;
  OpenOptions options;
  options.path =
      folder.write("x.tar", tar_member("0.txt", "x") +
                                tar_member("1.txt", std::string(2 << 20, 'x')) + tar_end());
  options.memory_bytes = 1 << 20;
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { open_records(options); })
                .find("the record '1' at byte 1024"),
            std::string::npos);
}

TEST(WebDataset, SurvivesEveryDamage) {
  const Folder folder;
  OpenOptions options;
  options.format = "webdataset";
  options.path = folder.path("x.tar");
  read_all_damages(folder, "x.tar", small_tar(), options);
  read_all_damages(folder, "x.tar", gzipped(small_tar()), options);
  read_all_damages(folder, "x.tar",
                   tar_member("0.npy", npy_file("'<f4'", "(1,)", "abcd")) + tar_end(), options);
}

}  // namespace webdataset_tests
}  // namespace trireme::records
