// The names in shared objects of the user's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/config/registration.h>
#include <trireme/run/model_library.h>

#include "../base/expect_error.h"

namespace trireme::model_library_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ModelLibrary, NamesAreFoundInTheBytesOfAFile) {
  const std::string bytes = std::string(
                                "\x7f"
                                "ELF\0\x1e",
                                6) +
                            "trireme:\x1etrireme:model:a net:2.13.0:0.1.0\x1f" +
                            std::string("\0\0", 2) +
                            "\x1etrireme:data:my:set:2.13.0:0.1.0\x1f tail";
  EXPECT_THAT(registrations_in(bytes),
              ElementsAre(Registration{"model", "a net", "2.13.0", "0.1.0"},
                          Registration{"data", "my:set", "2.13.0", "0.1.0"}));
}

TEST(ModelLibrary, TextThatOnlyLooksLikeANameIsNone) {
  EXPECT_THAT(registrations_in(""), IsEmpty());
  EXPECT_THAT(registrations_in("trireme:model:a:2.13.0\x1f"), IsEmpty());
  EXPECT_THAT(registrations_in("\x1etrireme:model:a:2.13.0"), IsEmpty()) << "no end";
  EXPECT_THAT(registrations_in("\x1etrireme:model\x1f"), IsEmpty()) << "one field";
  EXPECT_THAT(registrations_in("\x1etrireme:model:" + std::string(400, 'a') + ":2\x1f"),
              IsEmpty());
}

TEST(ModelLibrary, AFileThatIsNotThereIsNamed) {
  EXPECT_THAT(message_of(ErrorCode::not_found, [] { use_model_library("absent.so"); }),
              HasSubstr("\"absent.so\", and there is no such file"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { use_model_library("/etc/hostname"); }),
              HasSubstr("registers no model"));
}

TEST(ModelLibrary, AProgrammeWithoutTheCallIsRefusedBeforeItIsStarted) {
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [] { use_model_library("/proc/self/exe"); }),
              HasSubstr("which is a programme that does not call trireme::run_as_worker()"));
}

TEST(ModelLibrary, AProgrammeIsToldFromASharedObject) {
  EXPECT_TRUE(is_programme("/proc/self/exe"));
  EXPECT_FALSE(is_programme("/etc/hostname"));
  EXPECT_THAT(message_of(ErrorCode::not_found, [] { is_programme("absent"); }),
              HasSubstr("\"absent\", which cannot be read"));
}

TEST(EarlyRegistration, KeepsTheFirstErrorUntilItIsAskedFor) {
  EXPECT_TRUE(config::register_early([] {}));
  config::throw_if_registration_failed();
  for (const char* const name : {"first", "second"})
    config::register_early(
        [&] { throw Error(ErrorCode::invalid_argument, "config", name, "another name"); });
  EXPECT_THAT(
      message_of(ErrorCode::invalid_argument, [] { config::throw_if_registration_failed(); }),
      HasSubstr("first"));
  config::throw_if_registration_failed();
}

}  // namespace
}  // namespace trireme::model_library_test
