"""Parameter servers on two hosts, with gradients that leave while backward runs (ps.overlap: the
model is large enough), in a cluster of TF_CONFIG with every role, and a link that is cut and
mended."""

import json
import unittest

import two_hosts
from server_jobs import SERVERS, ServerTest
from support import DIGITS, TRIREME, environment, wait_until

# The host of each task.
TASKS = {("chief", 0): 0, ("ps", 0): 0, ("evaluator", 0): 0, ("worker", 0): 1, ("ps", 1): 1}
COMMON = ("--set", "model.name=mlp", "--set", "model.hidden=[512,512]", "--set",
          "train.dtype=float64", "--set", "optimizer.lr=0.02", "--set", "train.evaluate_every=0")
BOUND = 150  # Seconds in which each process must have ended, on a busy machine.


@unittest.skipUnless(two_hosts.can_be_made(), "network namespaces cannot be made here")
class ServersOnTwoHosts(ServerTest):
    def setUp(self):
        super().setUp()
        self.hosts = two_hosts.TwoHosts()
        self.addCleanup(self.hosts.end)
        self.cluster = {}
        for number, (role, index) in enumerate(TASKS):
            address = self.hosts.addresses[TASKS[role, index]]
            self.cluster.setdefault(role, []).append(f"{address}:{29500 + number}")

    def start_tasks(self, *words, tasks=TASKS):
        processes = {}
        for (role, index), host in tasks.items():
            config = {"cluster": self.cluster, "task": {"type": role, "index": index}}
            processes[f"{role} {index}"] = self.start(
                *self.hosts.on(host), TRIREME, "train", DIGITS, *COMMON, *SERVERS, "--quiet",
                "--set", f"run.dir={self.folder / 'run'}", "--report", self.folder / "run.json",
                "--set", "comm.timeout=5s", "--set", "ps.patience=8s", *words,
                env=environment(TF_CONFIG=json.dumps(config), OMP_NUM_THREADS="1",
                                TRIREME_JOB_TOKEN="a token of this test",
                                TRIREME_HOST=f"host{host}"))
        return processes

    def codes_of(self, processes):
        ended = {name: process.communicate(timeout=BOUND) for name, process in processes.items()}
        codes = {name: process.returncode for name, process in processes.items()}
        return codes, "\n".join(f"{name}:\n{out}{err}" for name, (out, err) in ended.items())

    def test_the_losses_are_those_of_one_device(self):
        steps = ("--set", "train.steps=30", "--set", "checkpoint.every=10 steps")
        reference = self.train(*COMMON, "--set", "train.steps=30", name="one")
        codes, text = self.codes_of(self.start_tasks(*steps))
        self.assertEqual(set(codes.values()), {0}, text)
        report = json.loads((self.folder / "run.json").read_text())
        self.assertEqual(report["roles"], {"chief": 1, "worker": 1, "ps": 2, "evaluator": 1})
        self.assert_close(report["loss_history"], reference["loss_history"], 1e-10)

    def test_the_chiefs_host_goes_on_when_the_link_is_cut_and_the_others_join_again(self):
        for mode in ("sync", "async"):
            with self.subTest(mode):
                words = ("--set", f"ps.consistency={mode}", "--set", "train.epochs=40", "--set",
                         "checkpoint.every=10 steps", "--set", f"run.dir={self.folder / mode}",
                         "--inject", "slow:rank=0,forward=20ms,percent=100")
                processes = self.start_tasks(*words)
                beyond = {name: processes.pop(name) for name in ("worker 0", "ps 1")}
                wait_until(lambda: self.steps_logged(mode) > 25, 60, "25 steps")
                self.hosts.cut()
                codes, text = self.codes_of(beyond)
                self.assertEqual(set(codes.values()), {138}, f"{codes}\n{text}")
                before = self.steps_logged(mode)
                wait_until(lambda: self.steps_logged(mode) > before + 10, 60, "10 more steps")
                self.hosts.mend()
                processes |= self.start_tasks(
                    *words, tasks={task: host for task, host in TASKS.items() if host == 1})
                codes, text = self.codes_of(processes)
                self.assertEqual(set(codes.values()), {0}, f"{codes}\n{text}")
                report = json.loads((self.folder / "run.json").read_text())
                self.assertEqual(report["resumed_from_step"], 0)
                self.assertEqual([each["world_size"] for each in report["generations"]],
                                 [2, 1, 2], report["generations"])
                self.assert_each_sample_once(report, epochs=40)


if __name__ == "__main__":
    unittest.main()
