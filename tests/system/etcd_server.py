"""A real etcd for tests, on free ports of this host. It ends with the process that started it,
however that process ends."""

import base64
import json
import shutil
import signal
import subprocess
import tempfile
import os
import urllib.error
import urllib.request

from support import free_port, wait_until

# The shell lives until its standard input ends, and then cleans up.
SCRIPT = """trap '' INT TERM HUP
etcd --data-dir $0/data --listen-client-urls $1 --advertise-client-urls $1 \
  --listen-peer-urls $2 --initial-advertise-peer-urls $2 \
  --initial-cluster default=$2 >$0/log 2>&1 </dev/null &
echo $!
exec >/dev/null
read end
kill -9 $!
wait
rm -rf $0"""


def is_installed():
    return shutil.which("etcd") is not None


class EtcdServer:
    def __init__(self):
        for _ in range(3):  # Another process may be quicker to take the ports.
            if self._start():
                return
        raise AssertionError("etcd does not start")

    def _start(self):
        self.address = f"127.0.0.1:{free_port()}"
        folder = tempfile.mkdtemp(prefix="trireme-etcd-")
        self.shell = subprocess.Popen(["sh", "-c", SCRIPT, folder, f"http://{self.address}",
                                       f"http://127.0.0.1:{free_port()}"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      start_new_session=True)
        self.pid = int(self.shell.stdout.readline())
        try:
            wait_until(self._answers, 15, "etcd answers")
            return True
        except AssertionError:
            self.end()
            return False

    def _answers(self):
        try:
            self.get("are you there")
            return True
        except (OSError, urllib.error.URLError):
            return False

    def get(self, key):
        """Returns the value of a key; empty if the key does not exist."""
        question = json.dumps({"key": base64.b64encode(key.encode()).decode()}).encode()
        with urllib.request.urlopen(f"http://{self.address}/v3/kv/range", question,
                                    timeout=2) as reply:
            found = json.load(reply).get("kvs", [])
        return base64.b64decode(found[0]["value"]).decode() if found else ""

    def coordinator(self, job):
        return self.get(f"/trireme/{job}/coordinator")

    def stop(self):
        """Stops etcd, so that it answers no request, as if the network were cut."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    def end(self):
        self.shell.stdin.close()
        self.shell.wait(timeout=10)
        self.shell.stdout.close()
