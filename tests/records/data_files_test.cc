#include <trireme/records/data_files.h>

#include "files.h"

namespace trireme::records {
namespace data_files_tests {

TEST(DataFiles, ExpandsBracesWithTheirZeros) {
  EXPECT_EQ(expand_braces("s-{008..011}.tar"),
            (std::vector<std::string>{"s-008.tar", "s-009.tar", "s-010.tar", "s-011.tar"}));
  EXPECT_EQ(expand_braces("{a,b}/{0..1}"), (std::vector<std::string>{"a/0", "a/1", "b/0", "b/1"}));
  message_of(ErrorCode::invalid_argument, [] { expand_braces("x-{9..1}"); });
  message_of(ErrorCode::invalid_argument, [] { expand_braces("x-{0..99999999999}"); });
  message_of(ErrorCode::invalid_argument, [] { expand_braces("{0..9999}{0..9999}"); });
  message_of(ErrorCode::invalid_argument, [] { expand_braces("x-{0..1"); });
}

TEST(DataFiles, SortsTheFilesOfAFolderAndOfAPattern) {
  const Folder folder;
  for (const char* const name : {"b.txt", "a.txt", ".hidden.txt", "c.csv"})
    folder.write(name, "x");
  const std::vector<std::string_view> ends{".txt"};
  EXPECT_EQ(find_files(folder.path(), ends).names, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(find_files(folder.path("*.txt")).names, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(find_files(folder.path("{c,a}.*")).names,
            (std::vector<std::string>{"a.txt", "c.csv"}));
}

TEST(DataFiles, NamesTheFileThatBracesLack) {
  const Folder folder;
  folder.write("s-0.txt", "x");
  const std::string message =
      message_of(ErrorCode::not_found, [&] { find_files(folder.path("s-{0..1}.txt")); });
  EXPECT_NE(message.find("s-1.txt"), std::string::npos) << message;
}

TEST(DataFiles, RefusesCommandsAddressesAndNamesThatLeadOutside) {
  message_of(ErrorCode::unsupported, [] { find_files("pipe:cat x"); });
  message_of(ErrorCode::unsupported, [] { find_files("s3://bucket/x.tar"); });
  for (const char* const name : {"../x", "a/../../x", "/etc/passwd", "", ".."})
    message_of(ErrorCode::invalid_argument, [&] { require_inside(name, "list"); });
  EXPECT_NO_THROW(require_inside("a/../b/..c", "list"));
}

}  // namespace data_files_tests
}  // namespace trireme::records
