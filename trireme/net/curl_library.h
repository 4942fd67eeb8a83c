// The libcurl of this machine, loaded at the first use: only jobs that meet through etcd, or fetch
// their data, need it.
#pragma once
#include <curl/curl.h>

namespace trireme::net {

// The functions that Trireme calls, without curl_ in front.
// clang-format off
#define TRIREME_CURL_FUNCTIONS(X) \
  X(easy_cleanup) X(easy_getinfo) X(easy_init) X(easy_perform) X(easy_reset) \
  X(easy_setopt) X(easy_strerror) X(global_init) X(slist_append) X(slist_free_all)
// clang-format on

struct CurlLibrary {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name is declared.
#define TRIREME_CURL_MEMBER(name) decltype(&::curl_##name) name;
  TRIREME_CURL_FUNCTIONS(TRIREME_CURL_MEMBER)
#undef TRIREME_CURL_MEMBER
};

// Any thread. The library is started, and stays loaded. Throws Error(unsupported) if it is not on
// this machine.
const CurlLibrary& curl_library();

}  // namespace trireme::net
