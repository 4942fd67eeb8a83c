"""Two hosts on one machine: network namespaces with a link between them, which a test can cut."""

import os
import shutil
import subprocess

TOOLS = ("ip", "nsenter", "unshare")


def run(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True, timeout=20)


class TwoHosts:
    """`addresses` of the two hosts, and the words that start a programme on one of them."""

    addresses = ("10.99.0.1", "10.99.0.2")

    def __init__(self):
        self.holders = [subprocess.Popen(["unshare", "--net", "sh", "-c", "echo there; exec cat"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                        for _ in self.addresses]
        for holder in self.holders:
            holder.stdout.readline()
        second = self.holders[1].pid
        run(*self.on(0), "ip", "link", "add", "wire", "type", "veth", "peer", "name", "wire",
            "netns", second)
        for host, address in enumerate(self.addresses):
            run(*self.on(host), "ip", "address", "add", f"{address}/24", "dev", "wire")
            for device in ("lo", "wire"):
                run(*self.on(host), "ip", "link", "set", device, "up")

    def on(self, host):
        return ["nsenter", f"--net=/proc/{self.holders[host].pid}/ns/net", "--"]

    def cut(self):
        """Lets no packet pass any more, and tells no process."""
        self.set_wire("down")

    def mend(self):
        self.set_wire("up")

    def set_wire(self, state):
        for host in (0, 1):
            run(*self.on(host), "ip", "link", "set", "wire", state)

    def end(self):
        for holder in self.holders:
            holder.stdin.close()
            holder.wait(timeout=10)
            holder.stdout.close()


def can_be_made():
    """Returns whether this process may make network namespaces."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in TOOLS):
        return False
    try:
        run("unshare", "--net", "true")
        return True
    except (OSError, subprocess.SubprocessError):
        return False
