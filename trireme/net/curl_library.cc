#include <dlfcn.h>
#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/net/curl_library.h>
#include <string>

namespace trireme::net {
namespace {

CurlLibrary load_curl() {
  std::string why;
  void* handle = nullptr;
  for (const char* file : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle) break;
    if (why.empty()) why = dlerror();
  }
  const auto lacking = [](const std::string& reason) {
    return Error(
        ErrorCode::unsupported, "net",
        fmt::format("etcd and addresses of data need libcurl, which cannot be loaded: {}", reason),
        "install libcurl (on Debian 12: libcurl4), or --rendezvous HOST:PORT and files "
        "on this machine");
  };
  if (!handle) throw lacking(why);
  CurlLibrary library{};
#define TRIREME_CURL_FIND(name)                                                          \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, "curl_" #name)); \
  if (!library.name) throw lacking("it has no curl_" #name);
  TRIREME_CURL_FUNCTIONS(TRIREME_CURL_FIND)
#undef TRIREME_CURL_FIND
  library.global_init(CURL_GLOBAL_DEFAULT);
  return library;
}

}  // namespace

const CurlLibrary& curl_library() {
  static const CurlLibrary library = load_curl();
  return library;
}

}  // namespace trireme::net
