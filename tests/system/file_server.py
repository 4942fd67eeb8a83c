"""An HTTP server on loopback for tests: it serves files with ranges and ETags, and has faults on
request. And the base of the tests that read from it."""

import hashlib
import http.server
import re
import ssl
import threading

from support import TRIREME, SystemTest, environment


class FileServer:
    """Serves `files` (name -> bytes). `faults` has for a name a list of words, each for one
    request, in order: "503", "cut" (the connection ends in the middle), "stall", "slow", "short"
    (fewer bytes than said), "blind" (it continues whatever version it has), "to ADDRESS" (a
    redirection). `more` has headers for each answer with a file."""

    def __init__(self, files, ranges=True, versions="etag", certificate=None, lengths=True,
                 more=()):
        self.files, self.ranges, self.versions = dict(files), ranges, versions
        self.lengths, self.more = lengths, dict(more)
        self.faults, self.requests, self.bytes_sent = {}, [], 0
        self.lock, self.over = threading.Lock(), threading.Event()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # Clients go as they like.
        scheme = "http"
        if certificate:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)

    def requests_of(self, name):
        return [request for request in self.requests if request[0] == name]

    def _handler(outer):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def log_message(self, *_):
                pass

            def do_GET(self):
                name = self.path.lstrip("/").split("?")[0]
                with outer.lock:
                    outer.requests.append((name, dict(self.headers.items())))
                    waiting = outer.faults.get(name, [])
                    fault = waiting.pop(0) if waiting else ""
                if fault.startswith("to "):
                    self.send_response(302)
                    self.send_header("Location", fault[3:])
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                if name not in outer.files and not fault:
                    fault = "404"
                if fault.isdigit():
                    return self.send_error(int(fault))
                self.send_file(outer.files[name], fault)

            def send_file(self, content, fault):
                digest = hashlib.sha256(content).hexdigest()
                tag = f'"{digest[:16]}"'
                date = f"Mon, 01 Jan 2024 00:{int(digest[:2], 16) % 60:02}:00 GMT"
                version = {"etag": tag, "date": date, "none": None}[outer.versions]
                if version and version in (self.headers.get("If-None-Match"),
                                           self.headers.get("If-Modified-Since")):
                    self.send_response(304)
                    return self.end_headers()
                first, status = 0, 200
                asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
                fits = fault == "blind" or self.headers.get("If-Range") == version
                if asked and outer.ranges and fits:
                    first, status = int(asked[1]), 206
                    if first >= len(content):
                        return self.send_error(416)
                self.send_response(status)
                if outer.versions == "etag":
                    self.send_header("ETag", tag)
                elif version:
                    self.send_header("Last-Modified", version)
                if status == 206:
                    self.send_header("Content-Range",
                                     f"bytes {first}-{len(content) - 1}/{len(content)}")
                for name, value in outer.more.items():
                    self.send_header(name, value)
                rest = content[first:]
                if outer.lengths:
                    self.send_header("Content-Length", str(len(rest)))
                else:
                    self.send_header("Connection", "close")
                self.end_headers()
                self.send_rest(rest, fault)

            def send_rest(self, rest, fault):
                if fault in ("cut", "stall"):
                    rest = rest[:max(1, len(rest) // 2)]
                parts = [rest] if fault != "slow" else [rest[i:i + 4096]
                                                        for i in range(0, len(rest), 4096)]
                try:
                    for part in parts:
                        self.wfile.write(part)
                        self.wfile.flush()
                        with outer.lock:
                            outer.bytes_sent += len(part)
                        if fault == "slow":
                            outer.over.wait(0.02)
                    if fault == "stall":
                        outer.over.wait(20)
                except OSError:
                    pass  # The client has gone.
                if fault or not outer.lengths:
                    self.close_connection = True

        return Handler


class RemoteTest(SystemTest):
    def serve(self, files, **options):
        server = FileServer(files, **options)
        self.addCleanup(server.close)
        return server

    @property
    def downloads(self):
        return self.folder / "downloads"

    def data(self, command, address, *words, code=0, **more):
        out, err = self.out_and_err(command, address, *words, code=code, **more)
        return out if code == 0 else out + err

    def out_and_err(self, command, address, *words, code=0, before=(), **more):
        options = ["--index-dir", self.folder / "index", "--download-dir", self.downloads,
                   "--download-timeout", "1s", "--download-tries", "2"]
        actual, out, err = self.run_to_end(
            *before, TRIREME, "data", command, address, *options, *words,
            env=environment(no_proxy="127.0.0.1", NO_PROXY="127.0.0.1", **more))
        self.assertEqual(actual, code, out + err)
        return out, err
