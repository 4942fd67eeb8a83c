#include <trireme/net/download.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/base/text.h>
#include <trireme/base/version.h>
#include <trireme/net/curl_library.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>

namespace trireme::net {
namespace {

constexpr long kMostRedirections = 5;
constexpr long kLeastBytesInSecond = 1024;
constexpr std::string_view kAnotherVersion = "the server continues another version of the file";
constexpr long kOk = 200, kPartial = 206, kSame = 304, kBadRange = 416;

// A whole number at the front of the text; -1 if there is none.
int64_t number_in_front(std::string_view text) {
  int64_t number = -1;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool may_pass(long status) {
  return status == 408 || status == 425 || status == 429 || (status >= 500 && status != 501);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& letter : lower)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return lower;
}

std::string meaning_of(long status) {
  switch (status) {
    case 401: return "401: it wants a user and a password";
    case 403: return "403: it forbids the access";
    case 404: return "404: there is no such file";
    case 410: return "410: the file is gone";
    case 429: return "429: too many requests";
    case 503: return "503: the server is overloaded or down";
    default: return std::to_string(status);
  }
}

// One request while it runs.
class Transfer {
 public:
  explicit Transfer(const DownloadRequest& request)
      : request_(request), handle_(library_.easy_init(), library_.easy_cleanup) {
    if (!handle_) throw Error(ErrorCode::internal, "net", "libcurl cannot be started");
  }

  DownloadReply run() {
    set_up();
    const CURLcode code = library_.easy_perform(handle_.get());
    if (thrown_) std::rethrow_exception(thrown_);
    DownloadReply reply = judge(code);
    reply.head = head_;
    return reply;
  }

 private:
  using HeaderList = std::unique_ptr<curl_slist, decltype(&::curl_slist_free_all)>;

  template <typename Value>
  void set(CURLoption option, Value value) {
    if (library_.easy_setopt(handle_.get(), option, value) != CURLE_OK)
      throw Error(ErrorCode::unsupported, "net",
                  fmt::format("the libcurl of this machine does not know the option {}",
                              static_cast<int>(option)),
                  "a newer libcurl");
  }

  void add_header(const std::string& line) {
    headers_ = HeaderList(library_.slist_append(headers_.release(), line.c_str()),
                          library_.slist_free_all);
  }

  void set_up() {
    set(CURLOPT_URL, request_.url.c_str());
    limit_protocols();
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, kMostRedirections);
    set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));
    const std::string agent = fmt::format("trireme/{}", version());
    set(CURLOPT_USERAGENT, agent.c_str());
    if (const char* const file = std::getenv("SSL_CERT_FILE"); file && *file)
      set(CURLOPT_CAINFO, file);
    const int64_t wait = std::clamp<int64_t>(request_.timeout.count(), 1000, 86'400'000);
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(wait));
    set(CURLOPT_LOW_SPEED_LIMIT, kLeastBytesInSecond);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>((wait + 999) / 1000));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_ERRORBUFFER, why_.data());
    if (continues()) {
      range_ = fmt::format("{}-", request_.offset);
      set(CURLOPT_RANGE, range_.c_str());
      add_header("If-Range: " + request_.version);
    } else if (request_.unless_same && !request_.version.empty()) {
      add_header((is_date() ? "If-Modified-Since: " : "If-None-Match: ") + request_.version);
    }
    if (headers_) set(CURLOPT_HTTPHEADER, headers_.get());
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, this);
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_bytes);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
  }

  bool continues() const { return request_.offset > 0 && !request_.version.empty(); }
  bool is_date() const { return !request_.version.starts_with('"'); }

  // The numbers of libcurl before 7.85, which later ones still take.
  void limit_protocols() {
    const bool is_secret = request_.url.starts_with("https:");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    set(CURLOPT_REDIR_PROTOCOLS,
        static_cast<long>(is_secret ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
#pragma GCC diagnostic pop
  }

  // The lines of an answer. Those of a redirection are forgotten when the next answer begins.
  void see_header(std::string_view line) {
    if (line.starts_with("HTTP/")) {
      head_ = {}, entity_tag_.clear(), last_modified_.clear(), is_chunked_ = false;
      const size_t space = line.find(' ');
      is_framed_ = line.starts_with("HTTP/2") || line.starts_with("HTTP/3");
      if (space != std::string_view::npos)
        head_.status = static_cast<long>(number_in_front(line.substr(space + 1)));
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const std::string name = lower_case(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "content-length" && head_.status == kOk) {
      head_.size = number_in_front(value);
    } else if (name == "content-range" && head_.status == kPartial) {
      if (value.starts_with("bytes ")) head_.offset = number_in_front(value.substr(6));
      if (const size_t slash = value.find('/'); slash != std::string_view::npos)
        head_.size = number_in_front(value.substr(slash + 1));
    } else if (name == "etag" && value.starts_with('"')) {  // Others are weak.
      entity_tag_ = value;
    } else if (name == "last-modified") {
      last_modified_ = value;
    } else if (name == "transfer-encoding") {
      // Others, such as identity, have no end that would show a cut.
      is_chunked_ |= lower_case(value).ends_with("chunked");
    }
  }

  bool has_file() const { return head_.status == kOk || head_.status == kPartial; }

  // Whether the bytes are the rest of another version than the one that was begun. Not every
  // server knows If-Range. The answer to it may leave Last-Modified out, but not an ETag (RFC
  // 9110, section 15.3.7).
  bool is_rest_of_another() const {
    if (head_.status != kPartial || !continues()) return false;
    if (request_.size >= 0 && head_.size != request_.size) return true;
    if (!is_date()) return entity_tag_ != request_.version;
    return !last_modified_.empty() && last_modified_ != request_.version;
  }

  void check_head() {
    const bool is_wrong_part =
        head_.status == kPartial && (head_.offset != request_.offset || head_.size < 0);
    if (is_wrong_part) wrong_ = "the server sends another part of the file than was asked for";
    if (head_.size < 0 && !is_chunked_ && !is_framed_)
      wrong_ = "the server does not say how long the file is, so that a cut would not be noticed";
  }

  // Returns false if the transfer must end.
  bool take(std::span<const std::byte> bytes) {
    if (!has_file()) {  // The text of an error.
      ignored_ += bytes.size();
      return ignored_ < (1 << 20);
    }
    if (!has_begun_) begin();
    if (!wrong_.empty() || has_no_rest_) return false;
    taken_ += static_cast<int64_t>(bytes.size());
    if (request_.take) request_.take(bytes);
    return true;
  }

  void begin() {
    has_begun_ = true;
    head_.version = entity_tag_.empty() ? last_modified_ : entity_tag_;
    check_head();
    has_no_rest_ = wrong_.empty() && is_rest_of_another();
    if (wrong_.empty() && !has_no_rest_ && request_.begin) request_.begin(head_);
  }

  DownloadReply judge(CURLcode code) {
    DownloadReply reply;
    if (request_.stop.stop_requested()) {
      reply.end = DownloadEnd::stopped;
      return reply;
    }
    if (!wrong_.empty()) {
      reply.end = DownloadEnd::not_there, reply.failure = wrong_;
      return reply;
    }
    if (has_no_rest_) return no_rest(kAnotherVersion);
    if (code != CURLE_OK) {
      reply.failure = why_[0] ? why_.data() : library_.easy_strerror(code);
      if (code == CURLE_UNSUPPORTED_PROTOCOL)
        reply.failure = "a redirection leads from https to http, or to neither of them";
      if (!may_help(code)) reply.end = DownloadEnd::not_there;
      return reply;
    }
    if (head_.status == kSame) {
      reply.end = DownloadEnd::same;
      return reply;
    }
    if (head_.status == kBadRange)
      return no_rest("the server has no bytes where the file was cut");
    if (!has_file()) {
      reply.failure = fmt::format("the server answers {}", meaning_of(head_.status));
      if (!may_pass(head_.status)) reply.end = DownloadEnd::not_there;
      ask_for_wait(reply);
      return reply;
    }
    if (!has_begun_) begin();  // An empty file.
    if (has_no_rest_) return no_rest(kAnotherVersion);
    if (!wrong_.empty()) {
      reply.end = DownloadEnd::not_there, reply.failure = wrong_;
    } else if (head_.size >= 0 && head_.offset + taken_ != head_.size) {
      reply.failure =
          fmt::format("{} bytes came, but the server said {}", head_.offset + taken_, head_.size);
    } else {
      reply.end = DownloadEnd::done;
    }
    return reply;
  }

  static DownloadReply no_rest(std::string_view why) {
    DownloadReply reply;
    reply.failure = why, reply.has_no_rest = true;
    return reply;
  }

  static bool may_help(CURLcode code) {
    switch (code) {
      case CURLE_UNSUPPORTED_PROTOCOL:
      case CURLE_URL_MALFORMAT:
      case CURLE_TOO_MANY_REDIRECTS:
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE: return false;
      default: return true;
    }
  }

  void ask_for_wait(DownloadReply& reply) {
    curl_off_t seconds = 0;
    if (library_.easy_getinfo(handle_.get(), CURLINFO_RETRY_AFTER, &seconds) == CURLE_OK &&
        seconds > 0)
      reply.retry_after = std::chrono::seconds(std::min<int64_t>(seconds, 3600));
  }

  // libcurl is C: no exception may pass it.
  template <typename Action>
  size_t guarded(size_t count, Action action) {
    try {
      return action() ? count : 0;
    } catch (...) {
      thrown_ = std::current_exception();
      return 0;
    }
  }
  static size_t on_header(char* bytes, size_t size, size_t count, void* self) {
    auto& own = *static_cast<Transfer*>(self);
    return own.guarded(size * count, [&] {
      own.see_header({bytes, size * count});
      return true;
    });
  }
  static size_t on_bytes(char* bytes, size_t size, size_t count, void* self) {
    auto& own = *static_cast<Transfer*>(self);
    return own.guarded(size * count, [&] {
      return own.take({reinterpret_cast<const std::byte*>(bytes), size * count});
    });
  }
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Transfer*>(self)->request_.stop.stop_requested() ? 1 : 0;
  }

  const DownloadRequest& request_;
  const CurlLibrary& library_ = curl_library();
  std::unique_ptr<CURL, decltype(&::curl_easy_cleanup)> handle_;
  HeaderList headers_{nullptr, library_.slist_free_all};
  std::string range_, entity_tag_, last_modified_, wrong_;
  std::array<char, CURL_ERROR_SIZE> why_{};
  DownloadHead head_;
  bool is_chunked_ = false, is_framed_ = false, has_begun_ = false, has_no_rest_ = false;
  size_t ignored_ = 0;
  int64_t taken_ = 0;
  std::exception_ptr thrown_;
};

}  // namespace

DownloadReply download(const DownloadRequest& request) { return Transfer(request).run(); }

}  // namespace trireme::net
