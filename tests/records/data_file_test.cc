#include <trireme/records/damage.h>
#include <trireme/records/data_file.h>
#include <cerrno>

#include "files.h"

namespace trireme::records {
namespace data_file_tests {

std::string message_of_reason(ErrorCode code, int reason) {
  return message_of(code, [&] {
    with_place([] { return "shard.tar, record 5"; },
               [&] { throw refused_by_system("read", reason); });
  });
}

TEST(DataFile, TellsWhatToDoAboutAnErrorOfTheSystem) {
  EXPECT_EQ(
      message_of_reason(ErrorCode::io, ESTALE),
      "[data] shard.tar, record 5: cannot read it: Stale file handle; try: mount the network "
      "file system again");
  for (const int reason : {EMFILE, ENFILE})
    EXPECT_NE(message_of_reason(ErrorCode::io, reason).find("ulimit -n"), std::string::npos);
  EXPECT_NE(message_of_reason(ErrorCode::io, EIO).find("try: check the file, its disk"),
            std::string::npos);
  for (const int reason : {ENOENT, ENOTDIR})
    EXPECT_NE(message_of_reason(ErrorCode::not_found, reason).find("correct the path"),
              std::string::npos);
}

}  // namespace data_file_tests
}  // namespace trireme::records
