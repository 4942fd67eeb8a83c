#include <trireme/base/files.h>
#include <numeric>

#include "files.h"
#include "gone_server.h"

namespace trireme::records {
namespace images_tests {

namespace fs = std::filesystem;

std::string error_of(const OpenOptions& options, ErrorCode code) {
  return message_of(code, [&] { open_records(options); });
}

int64_t label_of(const Reader& reader, int64_t index) {
  return numbers_of<int64_t>(read_record(reader, index).at("label")).at(0);
}

TEST(ImageFolder, HasAClassForEachFolderInTheOrderOfNames) {
  const Folder folder;
  folder.write("dog/1.JPG", "dog one");
  folder.write("cat/deep/2.png", "cat two");
  folder.write("cat/b.webp", "cat b");
  folder.write("cat/notes.txt", "no image");
  folder.write("readme.md", "no folder");
  const auto reader = open_path(folder.path());
  ASSERT_EQ(reader->size(), 3);
  EXPECT_EQ(reader->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(text_of(*reader, 0, "image"), "cat b");
  EXPECT_EQ(text_of(*reader, 1, "image"), "cat two");
  EXPECT_EQ(text_of(*reader, 2, "image"), "dog one");
  EXPECT_EQ(label_of(*reader, 2), 1);
  EXPECT_EQ(reader->label(2), 1);
  EXPECT_NE(reader->place(2).find("dog/1.JPG, record 2"), std::string::npos);
}

TEST(OpenRecords, GuessesTheFormatOfAFolder) {
  const Folder folder;
  folder.write("a/1.jpg", "one");
  folder.write("notes.txt", "about the images");
  EXPECT_EQ(guess_format(folder.path()).name, "image_folder");
  folder.write("x.csv", "a\n1\n");
  EXPECT_EQ(guess_format(folder.path()).name, "csv");
  folder.write("x.tar", "");
  EXPECT_NE(message_of(ErrorCode::invalid_argument, [&] { guess_format(folder.path()); })
                .find("webdataset"),
            std::string::npos);
}

TEST(ImageFolder, NoticesChangesAfterItWasIndexed) {
  const Folder folder;
  folder.write("a/1.jpg", "one");
  folder.write("a/2.jpg", "two");
  const auto reader = open_path(folder.path());
  const std::string content = reader->content();
  folder.write("a/2.jpg", "longer");
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 1); }).find("2.jpg"),
            std::string::npos);
  folder.write("b/3.jpg", "three");
  EXPECT_NE(
      message_of(ErrorCode::corrupt, [&] { open_path(folder.path()); }).find("became 3, from 2"),
      std::string::npos);
  fs::remove_all(folder.path("b"));
  EXPECT_EQ(open_path(folder.path())->content(), content);
}

TEST(ImageFolder, RefusesLinksThatLeadOutsideAndClassesWithoutImages) {
  const Folder folder, other;
  folder.write("a/1.jpg", "one");
  other.write("secret.jpg", "secret");
  OpenOptions options;
  options.path = folder.path();
  fs::create_symlink(other.path("secret.jpg"), folder.path("a/2.jpg"));
  EXPECT_NE(error_of(options, ErrorCode::invalid_argument).find("outside"), std::string::npos);
  fs::remove(folder.path("a/2.jpg"));
  fs::create_directory_symlink(other.path(), folder.path("b"));
  options.format = "image_folder";
  EXPECT_NE(error_of(options, ErrorCode::invalid_argument).find("outside"), std::string::npos);
  fs::remove(folder.path("b"));
  fs::create_directory_symlink(folder.path("a"), folder.path("a/loop"));
  EXPECT_NE(error_of(options, ErrorCode::invalid_argument).find("deep"), std::string::npos);
  fs::remove(folder.path("a/loop"));
  fs::create_directory(folder.path("empty"));
  EXPECT_NE(error_of(options, ErrorCode::invalid_argument).find("empty"), std::string::npos);
}

TEST(ImageList, ReadsPathsAndLabelsWithAnySeparator) {
  const Folder folder;
  folder.write("i/a b.jpg", "a");
  folder.write("i/c.png", "c");
  folder.write("list.txt", "i/a b.jpg\t7\ni/c.png,2\r\n\ni/c.png 0");
  const auto reader = open_path(folder.path("list.txt"), "image_list");
  ASSERT_EQ(reader->size(), 3);
  EXPECT_EQ(text_of(*reader, 0, "image"), "a");
  EXPECT_EQ(label_of(*reader, 0), 7);
  EXPECT_EQ(label_of(*reader, 1), 2);
  EXPECT_EQ(label_of(*reader, 2), 0);
}

TEST(ImageList, NumbersTheNamesOfLabels) {
  const Folder folder;
  folder.write("a.jpg", "a");
  const auto reader = open_path(folder.write("list", "a.jpg dog\na.jpg cat\n"), "image_list");
  EXPECT_EQ(reader->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(reader->label(0), 1);
}

TEST(ImageList, NamesTheLineThatIsWrong) {
  const Folder folder, other;
  folder.write("a.jpg", "a");
  other.write("b.jpg", "b");
  fs::create_directory_symlink(other.path(), folder.path("out"));
  OpenOptions options;
  options.format = "image_list";
  const auto expect = [&](const std::string& text, ErrorCode code, std::string_view part) {
    options.path = folder.write("list.txt", "a.jpg 0\n" + text);
    const std::string message = error_of(options, code);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("line 2"), std::string::npos) << message;
  };
  expect("lonely\n", ErrorCode::invalid_argument, "a path and a label");
  expect("missing.jpg 1\n", ErrorCode::corrupt, "missing.jpg");
  expect("../b.jpg 1\n", ErrorCode::invalid_argument, "outside");
  expect("/etc/passwd 1\n", ErrorCode::invalid_argument, "outside");
  expect("out/b.jpg 1\n", ErrorCode::invalid_argument, "outside");
  expect("a.jpg -1\n", ErrorCode::invalid_argument, "-1");
}

std::string cifar_record(const std::string& labels, int seed) {
  std::string pixels(3072, '\0');
  std::iota(pixels.begin(), pixels.end(), static_cast<char>(seed));
  return labels + pixels;
}

TEST(Cifar, ReadsBothKindsAsViews) {
  const Folder ten, hundred;
  ten.write("data_batch_1.bin", cifar_record("\x03", 1) + cifar_record("\x09", 2));
  ten.write("data_batch_2.bin", cifar_record("\x04", 3));
  ten.write("test_batch.bin", cifar_record("\x01", 4));
  ten.write("batches.meta.txt", "airplane\nautomobile\n\n");
  hundred.write("train.bin", cifar_record("\x07\x63", 5));
  OpenOptions options;
  options.format = "cifar";
  options.path = ten.path();
  const auto train = open_records(options);
  ASSERT_EQ(train->size(), 3);
  EXPECT_EQ(train->blocks(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(label_of(*train, 2), 4);
  const Record record = read_record(*train, 1);
  EXPECT_EQ(record.at("image").bytes[0], std::byte{2});
  EXPECT_EQ(std::vector<int64_t>(record.at("image").shape.begin(), record.at("image").shape.end()),
            (std::vector<int64_t>{3, 32, 32}));
  EXPECT_NE(train->place(1).find("data_batch_1.bin, record 1 at byte 3073"), std::string::npos);
  EXPECT_EQ(train->class_names().at(1), "automobile");
  options.part = "test";
  EXPECT_EQ(label_of(*open_records(options), 0), 1);
  options = {.format = "cifar", .path = hundred.path()};
  const auto fine = open_records(options);
  EXPECT_EQ(label_of(*fine, 0), 99);
  EXPECT_EQ(numbers_of<int64_t>(read_record(*fine, 0).at("coarse")).at(0), 7);
  EXPECT_EQ(numbers_of<int64_t>(read_record(*fine, 0).at("fine")).at(0), 99);
}

TEST(Cifar, ReadsPackedFiles) {
  const Folder folder, plain;
  const std::string first = cifar_record("\x03", 1) + cifar_record("\x09", 2);
  plain.write("data_batch_1.bin", first);
  plain.write("data_batch_2.bin", cifar_record("\x04", 3));
  folder.write("data_batch_1.bin.gz", gzipped(first));
  folder.write("data_batch_2.bin.gz", gzipped(cifar_record("\x04", 3)));
  folder.write("test_batch.bin.zst", zstd_packed(cifar_record("\x01", 4)));
  OpenOptions options;
  options.format = "cifar";
  options.path = folder.path();
  const auto expected = open_path(plain.path(), "cifar");
  const auto expect_same = [&] {
    const auto reader = open_records(options);
    ASSERT_EQ(reader->size(), 3);
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(text_of(*reader, i, "image"), text_of(*expected, i, "image"));
      EXPECT_EQ(label_of(*reader, i), label_of(*expected, i));
    }
  };
  expect_same();
  // Some are unpacked already, and their twins are there too.
  folder.write("data_batch_1.bin", first);
  expect_same();
  fs::remove(folder.path("data_batch_1.bin.gz"));
  expect_same();
  folder.write("data_batch_1.bin.gz", gzipped(first));
  fs::remove(folder.path("data_batch_1.bin"));
  options.part = "test";
  EXPECT_EQ(label_of(*open_records(options), 0), 1);
  options.part = "train";
  options.memory_bytes = 1 << 16;
  folder.write("data_batch_2.bin.gz", gzipped(std::string(1 << 16, '\0')));
  const std::string message =
      message_of(ErrorCode::invalid_argument, [&] { open_records(options); });
  EXPECT_NE(message.find("data_batch_2.bin.gz"), std::string::npos) << message;
  EXPECT_NE(message.find("it unpacks to more than 65.5 KB together with the 6.1 KB of the files"),
            std::string::npos)
      << message;
  folder.write("data_batch_2.bin.gz", gzipped(first).substr(0, 60));
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { open_records(options); }).find("cut"),
            std::string::npos);
}

TEST(Cifar, ReadsTheFilesOfAServer) {
  const Folder folder;
  const GoneServer server;
  for (const char* const name : {"a.bin", "b.bin"})
    server.put(name, read_file(folder.write(name, cifar_record("\x03", name[0]))));
  folder.write("batches.meta.txt", "airplane\n");
  const auto remote = open_records(server.options("cifar", GoneServer::address("{a,b}.bin")));
  expect_same_records(*remote, *open_path(folder.path("{a,b}.bin"), "cifar"));
  EXPECT_EQ(remote->place(1), "http://127.0.0.1:1/data/b.bin, record 0 at byte 0");
  EXPECT_TRUE(remote->class_names().empty());
  const int64_t stamp = remote->stamp(0);
  server.put("b.bin", cifar_record("\x04", 1));
  const OpenOptions options = server.options("cifar", GoneServer::address("{a,b}.bin"));
  EXPECT_NE(open_records(options)->stamp(0), stamp);
  EXPECT_NE(
      refusal_without_secret(server.options("cifar", GoneServer::address("c.bin")), ErrorCode::io)
          .find("data/c.bin: it cannot be fetched in 1 tries"),
      std::string::npos);
}

TEST(OpenRecords, SaysWhyImagesOnAServerAreRefused) {
  const GoneServer server;
  for (const char* const format : {"image_folder", "image_list"}) {
    const std::string said = refusal_without_secret(
        server.options(format, GoneServer::address("list.txt")), ErrorCode::unsupported);
    EXPECT_NE(said.find("trireme data pack --to webdataset"), std::string::npos) << said;
    EXPECT_NE(said.find("http://127.0.0.1:1/data/list.txt"), std::string::npos) << said;
  }
  const Folder folder;
  const std::string list = folder.write("list.txt", GoneServer::address("cat.jpg") + " 0\n");
  const std::string said =
      refusal_without_secret(server.options("image_list", list), ErrorCode::corrupt);
  EXPECT_NE(said.find("'http://127.0.0.1:1/data/cat.jpg' is an address"), std::string::npos);
  OpenOptions keeping = server.options("image_list", list);
  keeping.keeps_damaged = true;
  const std::string place = open_records(keeping)->place(0);
  EXPECT_NE(place.find("http://127.0.0.1:1/data/cat.jpg, record 0"), std::string::npos) << place;
}

TEST(Cifar, RefusesCutFilesAndWrongLabels) {
  const Folder folder;
  OpenOptions options;
  options.format = "cifar";
  options.path = folder.write("x.bin", cifar_record("\x03", 1) + "xx");
  EXPECT_NE(error_of(options, ErrorCode::corrupt).find("3074"), std::string::npos);
  options.path = folder.write("x.bin", cifar_record("\x0a", 1));
  const auto reader = open_records(options);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*reader, 0); }).find("label is 10"),
            std::string::npos);
  folder.write("x.bin", cifar_record("\x01", 1));
  folder.write("batches.meta.txt", std::string(2 << 20, 'x'));
  EXPECT_NE(error_of(options, ErrorCode::invalid_argument).find("names of classes"),
            std::string::npos);
  fs::remove(folder.path("batches.meta.txt"));
  const auto shrunk = open_records(options);
  fs::resize_file(options.path, 10);
  EXPECT_NE(message_of(ErrorCode::corrupt, [&] { read_record(*shrunk, 0); }).find("now has 10"),
            std::string::npos);
}

}  // namespace images_tests
}  // namespace trireme::records
