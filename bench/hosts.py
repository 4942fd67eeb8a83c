"""Hosts played on this machine: network namespaces, each with a shaped link to one switch."""

import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from contenders import ONE_THREAD, TIMEOUT_S, object_in

# The number of the process that made them follows. So the remains of a killed benchmark are found,
# and those of others are not touched.
PREFIX = "trireme-bench-"
PAYLOAD = 0.956  # The part of the rate that is left for data: 1448 of 1514 bytes.


class NotPermitted(Exception):
    pass


class RunFailed(SystemExit):
    """Ends the suite, unless the caller handles it."""


class Hosts:
    """Use it by `with`: it removes everything that it made, however the block ends."""

    def __init__(self, count, mbit):
        self.mbit = mbit
        self.names = [f"{PREFIX}{os.getpid()}-host{i}" for i in range(count)]
        self.switch = f"{PREFIX}{os.getpid()}-switch"
        # Each job has a port of its own, since the last one may linger.
        self.ports = itertools.count(29400)

    def __enter__(self):
        remove_namespaces(left_behind())
        try:
            self._make()
        except subprocess.CalledProcessError as failure:
            self.__exit__()
            raise NotPermitted(f"{' '.join(failure.cmd)}: {failure.stderr.strip()}") from failure
        except FileNotFoundError as failure:
            missing = f"{failure.filename} is missing (apt-get install iproute2)"
            raise NotPermitted(missing) from failure
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        existing = namespaces()
        remove_namespaces([name for name in [*self.names, self.switch] if name in existing])

    def _make(self):
        for name in [self.switch, *self.names]:
            ip("netns", "add", name)
        ip("-n", self.switch, "link", "add", "switch", "type", "bridge")
        ip("-n", self.switch, "link", "set", "switch", "up")
        for i, name in enumerate(self.names):
            port = f"port{i}"
            ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", "eth0",
               "netns", name)
            ip("-n", self.switch, "link", "set", port, "master", "switch", "up")
            ip("-n", name, "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            for end, device in ((name, "eth0"), (self.switch, port)):
                do("tc", "-n", end, "qdisc", "add", "dev", device, "root", "tbf",
                   "rate", f"{self.mbit}mbit", "burst", "256kb", "limit", "4mb")

    def address(self, host):
        return f"10.77.0.{host + 1}"

    def wire_seconds(self, sent_bytes):
        """Returns the time that a link needs for this many bytes each way."""
        return sent_bytes * 8 / (self.mbit * 1e6 * PAYLOAD)

    def ours(self, words):
        """Runs a `trireme bench` command over all hosts, with a launcher on each. Returns its JSON
        object."""
        endpoint = f"{self.address(0)}:{next(self.ports)}"
        token = {"TRIREME_JOB_TOKEN": f"bench-{os.getpid()}-{endpoint}"}
        words = [*words, "--nodes", len(self.names), "--rendezvous", endpoint]
        hosts = range(len(self.names))
        return self._run([(host, [*words, "--node", host]) for host in hosts], token)

    def peers(self, words, ranks, environment=()):
        """Runs a peer.py command with a process for each rank. The hosts get the ranks in order."""
        store = f"{self.address(0)}:{next(self.ports)}"
        each = ranks // len(self.names)
        commands = [(rank // each, [*words, "--rank", rank, "--store", store])
                    for rank in range(ranks)]
        return self._run(commands, {"GLOO_SOCKET_IFNAME": "eth0", **dict(environment)})

    def _run(self, commands, environment):
        environment = {**os.environ, **ONE_THREAD, **environment}
        processes = []
        try:
            for host, words in commands:
                all_words = ["ip", "netns", "exec", self.names[host], *map(str, words)]
                process = subprocess.Popen(all_words, env=environment, stdout=subprocess.PIPE,
                                           stderr=subprocess.PIPE, text=True,
                                           start_new_session=True)
                processes.append(process)
            deadline = time.monotonic() + TIMEOUT_S
            outputs = [process.communicate(timeout=max(1, deadline - time.monotonic()))
                       for process in processes]
        except subprocess.TimeoutExpired:
            sys.exit(f"bench: not finished after {TIMEOUT_S} s: {' '.join(all_words)}")
        finally:
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        for process, (_, error) in zip(processes, outputs):
            if process.returncode != 0:
                words = " ".join(process.args)
                raise RunFailed(f"bench: exit code {process.returncode}: {words}\n{error}")
        return object_in(outputs[0][0])


def do(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


def ip(*words):
    return do("ip", *words)


def namespaces():
    return [line.split()[0] for line in ip("netns", "list").splitlines() if line]


def left_behind():
    """Returns the namespaces of benchmarks that have ended."""
    try:
        named = [(name, re.match(rf"{PREFIX}(\d+)-", name)) for name in namespaces()]
    except (subprocess.CalledProcessError, FileNotFoundError):
        return []
    return [name for name, match in named
            if match and not pathlib.Path("/proc", match[1]).exists()]


def remove_namespaces(names):
    for name in names:
        ip("netns", "del", name)
