// A file from an http or https address, or the rest of one. https certificates are verified;
// proxies are those of the usual environment variables. SSL_CERT_FILE names other certificates to
// trust than the system's. Users and passwords are those of the address, or of ~/.netrc.
#pragma once
#include <trireme/base/deadline.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

namespace trireme::net {

// The answer of the server, before the bytes of the file.
struct DownloadHead {
  long status = 0;
  int64_t size = -1;    // Of the whole file; -1: the server does not say it.
  int64_t offset = 0;   // Of the first byte that follows.
  std::string version;  // What tells a change: a strong ETag, or else Last-Modified; or empty.
};

struct DownloadRequest {
  std::string url;
  // The first byte that is wanted. A server that does not know ranges, or has the file in another
  // version than `version`, sends all of it.
  int64_t offset = 0;
  std::string version;
  int64_t size = -1;         // The bytes of the whole file in that version; -1: not known.
  bool unless_same = false;  // With offset 0: no bytes if the file still has this version.
  // A connection that is not there in this time, or brings less than 1 KB a second for as long, is
  // given up.
  Milliseconds timeout{30'000};
  // Called once before the bytes. An exception ends the download, and comes out of download().
  std::function<void(const DownloadHead&)> begin;
  std::function<void(std::span<const std::byte>)> take;  // The same.
  std::stop_token stop{};
};

enum class DownloadEnd {
  done,       // All bytes of the file from the offset on were taken.
  same,       // The file has the version that was given.
  not_there,  // The server refused, and will do so again: see `failure`.
  failed,     // Another try may help.
  stopped,    // The caller asked for it.
};

struct DownloadReply {
  DownloadEnd end = DownloadEnd::failed;
  DownloadHead head;
  std::string failure;                      // The reason, without addresses.
  bool has_no_rest = false;                 // With `failed`: no rest of `version` can be had.
  std::optional<Milliseconds> retry_after;  // The server's wish.
};

// Follows at most 5 redirections, and none from https to http. Any thread. Throws
// Error(unsupported) if there is no libcurl, and what the functions of the request throw.
DownloadReply download(const DownloadRequest& request);

}  // namespace trireme::net
