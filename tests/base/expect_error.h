// Runs `action`, which must throw an Error of `code`, and returns its message.
#pragma once
#include <gtest/gtest.h>
#include <trireme/base/error.h>
#include <string>

namespace trireme {

template <typename Action>
std::string message_of(ErrorCode code, Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace trireme
