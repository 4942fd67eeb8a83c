#include <trireme/net/http.h>

#include <curl/curl.h>
#include <trireme/base/error.h>
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

void start_curl() {
  [[maybe_unused]] static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
}

}  // namespace

struct HttpClient::Impl {
  CURL* curl = nullptr;
  curl_slist* headers = nullptr;
  std::string local_address;
};

HttpClient::HttpClient() : impl_(std::make_unique<Impl>()) {
  start_curl();
  impl_->curl = curl_easy_init();
  if (!impl_->curl) throw Error(ErrorCode::internal, "net", "libcurl cannot be started");
  impl_->headers = curl_slist_append(nullptr, "Content-Type: application/json");
}

HttpClient::~HttpClient() {
  curl_slist_free_all(impl_->headers);
  curl_easy_cleanup(impl_->curl);
}

HttpReply HttpClient::post(const std::string& url, const std::string& json, Milliseconds at_most) {
  HttpReply reply;
  std::array<char, CURL_ERROR_SIZE> why{};
  CURL* const curl = impl_->curl;
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, impl_->headers);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, static_cast<long>(json.size()));
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json.c_str());
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS,
                   static_cast<long>(std::max<int64_t>(1, at_most.count())));
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);  // Do not wait for a name server that is silent.
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why.data());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &reply.body);
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (code != CURLE_OK) {
    reply.failure = why[0] ? why.data() : curl_easy_strerror(code);
    return reply;
  }
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &reply.status);
  const char* address = nullptr;
  if (curl_easy_getinfo(curl, CURLINFO_LOCAL_IP, &address) == CURLE_OK && address)
    impl_->local_address = address;
  return reply;
}

std::string HttpClient::local_address() const { return impl_->local_address; }

}  // namespace trireme::net
