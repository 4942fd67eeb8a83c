"""A cluster's own means for tests: they start the tasks of a job, and start one again while its
exit code asks for it, as Kubeflow's TFJob does with `restartPolicy: ExitCode`."""

import json
import signal
import subprocess
import time

from support import DIGITS, TRIREME, environment, free_port, wait_until

BOUND = 150  # Seconds in which a job must have ended.


class Cluster:
    """`counts` has the number of tasks of each role. With `hosts` (two_hosts.py) the tasks in
    `beyond` are on the second host, and the others on the first one."""

    def __init__(self, test, counts, *words, hosts=None, beyond=()):
        self.test, self.words, self.hosts, self.beyond = test, words, hosts, beyond
        self.spec = {role: [f"{self.address_of((role, index))}:{free_port()}"
                            for index in range(count)]
                     for role, count in counts.items()}
        self.outputs = []
        self.tasks = {}
        self.codes = {}  # The last exit code of each task that has ended.
        self.starts = {}
        for role, count in counts.items():
            for index in range(count):
                self.start((role, index))

    def address_of(self, task):
        return self.hosts.addresses[self.host_of(task)] if self.hosts else "127.0.0.1"

    def host_of(self, task):
        return int(task in self.beyond)

    def variables_of(self, role, index):
        config = {"cluster": self.spec, "task": {"type": role, "index": index}}
        return {"TF_CONFIG": json.dumps(config)}

    def start(self, task):
        role, index = task
        output = open(self.test.folder / f"output of {role} {index}", "a+")
        self.test.addCleanup(output.close)
        self.outputs.append(output)
        process = subprocess.Popen(
            [str(word) for word in (*self.on_its_host(task), TRIREME, "train", DIGITS,
                                    *self.words)],
            cwd=self.test.folder, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
            start_new_session=True,
            env=environment(OMP_NUM_THREADS="1", TRIREME_JOB_TOKEN="a token of this test",
                            TRIREME_HOST=f"host{self.host_of(task)}",
                            **self.variables_of(role, index)))
        self.test.started.append(process)
        self.tasks[task] = process
        self.starts[task] = self.starts.get(task, 0) + 1

    def leader(self):
        """The task that hosts the coordinator: when it is done, the job is."""
        return next((role, 0) for role in ("scheduler", "chief", "worker") if role in self.spec)

    def on_its_host(self, task):
        return self.hosts.on(self.host_of(task)) if self.hosts else ()

    def look(self):
        """Starts tasks again that ended with a code from 128 on, or by a signal, unless the job is
        done: a task that comes then finds nobody. Returns whether all tasks have ended."""
        for task, process in self.tasks.items():
            code = process.poll()
            if code is None or task in self.codes:
                continue
            if 0 <= code <= 127:
                self.codes[task] = code
            elif self.codes.get(self.leader()) == 0:
                self.codes[task] = 0
            else:
                self.start(task)
        return len(self.codes) == len(self.tasks)

    def look_until(self, moment):
        """Returns a condition that looks, and holds from `moment` on."""
        return lambda: self.look() or time.monotonic() >= moment

    def kill(self, role, index):
        if self.tasks[role, index].poll() is None:
            self.tasks[role, index].send_signal(signal.SIGKILL)
            self.tasks[role, index].wait()

    def wait(self, told=""):
        try:
            wait_until(self.look, BOUND, "all tasks have ended")
        except AssertionError as late:
            self.test.fail(f"{told}{late}: {self.codes}\n{self.text()}")
        self.test.assertEqual(set(self.codes.values()), {0}, f"{told}{self.codes}\n{self.text()}")

    def text(self):
        for output in self.outputs:
            output.flush()
        return "\n".join(f"{path.name}:\n{path.read_text()[-3000:]}"
                         for path in sorted(self.test.folder.glob("output of *")))


class ClusterOfDmlc(Cluster):
    NAMES = {"worker": "DMLC_WORKER_ID", "server": "DMLC_SERVER_ID"}

    def variables_of(self, role, index):
        number = {self.NAMES[role]: str(index)} if role in self.NAMES else {}
        host, port = self.spec["scheduler"][0].split(":")
        return {"DMLC_ROLE": role, "DMLC_PS_ROOT_URI": host, "DMLC_PS_ROOT_PORT": port,
                "DMLC_NUM_WORKER": str(len(self.spec["worker"])),
                "DMLC_NUM_SERVER": str(len(self.spec["server"])), **number}
