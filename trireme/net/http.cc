#include <trireme/net/http.h>

#include <trireme/base/error.h>
#include <trireme/net/curl_library.h>
#include <algorithm>
#include <array>

namespace trireme::net {
namespace {

constexpr size_t kMostBytes = 1 << 20;  // A limit on the memory that an answer can take.

size_t keep(char* bytes, size_t size, size_t count, void* body) {
  auto& text = *static_cast<std::string*>(body);
  if (text.size() + size * count > kMostBytes) return 0;
  text.append(bytes, size * count);
  return size * count;
}

}  // namespace

struct HttpClient::Impl {
  const CurlLibrary& library = curl_library();
  CURL* curl = nullptr;
  curl_slist* headers = nullptr;
  std::string local_address;
};

HttpClient::HttpClient() : impl_(std::make_unique<Impl>()) {
  impl_->curl = impl_->library.easy_init();
  if (!impl_->curl) throw Error(ErrorCode::internal, "net", "libcurl cannot be started");
  impl_->headers = impl_->library.slist_append(nullptr, "Content-Type: application/json");
}

HttpClient::~HttpClient() {
  impl_->library.slist_free_all(impl_->headers);
  impl_->library.easy_cleanup(impl_->curl);
}

HttpReply HttpClient::post(const std::string& url, const std::string& json, Milliseconds at_most) {
  HttpReply reply;
  std::array<char, CURL_ERROR_SIZE> why{};
  const CurlLibrary& library = impl_->library;
  CURL* const curl = impl_->curl;
  library.easy_reset(curl);
  library.easy_setopt(curl, CURLOPT_URL, url.c_str());
  library.easy_setopt(curl, CURLOPT_PROXY, "");
  library.easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  library.easy_setopt(curl, CURLOPT_HTTPHEADER, impl_->headers);
  library.easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(json.size()));
  library.easy_setopt(curl, CURLOPT_POSTFIELDS, json.c_str());
  library.easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                      static_cast<long>(std::max<int64_t>(1, at_most.count())));
  library.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  library.easy_setopt(curl, CURLOPT_QUICK_EXIT,
                      1L);  // Do not wait for a name server that is silent.
  library.easy_setopt(curl, CURLOPT_ERRORBUFFER, why.data());
  library.easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
  library.easy_setopt(curl, CURLOPT_WRITEDATA, &reply.body);
  const CURLcode code = library.easy_perform(curl);
  library.easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (code != CURLE_OK) {
    reply.failure = why[0] ? why.data() : library.easy_strerror(code);
    return reply;
  }
  library.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
  const char* address = nullptr;
  if (library.easy_getinfo(curl, CURLINFO_LOCAL_IP, &address) == CURLE_OK && address)
    impl_->local_address = address;
  return reply;
}

std::string HttpClient::local_address() const { return impl_->local_address; }

}  // namespace trireme::net
