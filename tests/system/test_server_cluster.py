"""A cluster of TF_CONFIG whose tasks are killed or lose their link, and are started again by what
started them.

TRIREME_SOAK sets the number of faults of each random test, TRIREME_SOAK_SEED repeats a run.
"""

import json
import os
import random
import time
import unittest

import two_hosts
from cluster import Cluster, ClusterOfDmlc
from server_jobs import SERVERS, SMALL, ServerTest
from support import DIGITS, TRIREME, environment, wait_until

FAULTS = int(os.environ.get("TRIREME_SOAK", "3"))
FAULTS_OF_A_RUN = 3
SEED = int(os.environ.get("TRIREME_SOAK_SEED", random.SystemRandom().randrange(1 << 32)))
RULES = ("--set", "checkpoint.every=20 steps", "--set", "comm.heartbeat_timeout=2s", "--set",
         "comm.timeout=20s", "--set", "train.dtype=float64",
         "--set", "train.evaluate_every=0", "--set", "optimizer.lr=0.02")
PATIENCE = ("--set", "ps.patience=20s")
SLOW = ("--inject", "slow:rank=0,forward=10ms; slow:rank=1,forward=10ms")
CUTS = (0.5, 3, 12)  # Seconds for which a link is cut. The last one is longer than any wait for it.


class ServersInACluster(ServerTest):
    def job(self, counts, *words, name="run", kind=Cluster, **where):
        cluster = kind(self, counts, *SMALL, *RULES, *PATIENCE, *SERVERS, *SLOW, "--quiet", "--set",
                          f"run.dir={self.folder / name}", "--report",
                          self.folder / f"{name}.json", *words, **where)
        wait_until(lambda: cluster.look() or self.steps_logged(name) > 5, 60, "the first steps")
        return cluster

    def report_of(self, cluster, name="run", told=""):
        cluster.wait(told)
        return json.loads((self.folder / f"{name}.json").read_text())

    def test_a_lost_worker_costs_its_step_alone(self):
        for mode in ("sync", "async"):
            with self.subTest(mode):
                cluster = self.job({"chief": 1, "worker": 2, "ps": 2}, "--set",
                                   f"ps.consistency={mode}", "--set", "train.epochs=30",
                                   name=mode)
                cluster.kill("worker", 0)
                report = self.report_of(cluster, mode)
                self.assert_each_sample_once(report, epochs=30)
                self.assertEqual(report["resumed_from_step"], 0)
                self.assertEqual(cluster.starts[("worker", 0)], 2)
                self.assertEqual(cluster.starts[("worker", 1)], 1, cluster.text())
                self.assertEqual([each["world_size"] for each in report["generations"]][0], 3)
                self.assertEqual(report["generations"][1]["lost_ranks"], [1])

    def test_a_job_of_dmlc_goes_on_without_a_worker_and_without_all_of_them(self):
        cluster = self.job({"scheduler": 1, "worker": 2, "server": 2}, "--set", "train.epochs=40",
                           kind=ClusterOfDmlc)
        cluster.kill("worker", 1)
        wait_until(lambda: cluster.look() or self.steps_logged() > 60, 60, "60 steps")
        cluster.kill("worker", 1)
        wait_until(lambda: cluster.look() or self.steps_logged() > 80, 60, "80 steps")
        cluster.kill("worker", 0)  # It comes back when worker 1 has the folder.
        time.sleep(2)
        report = self.report_of(cluster)
        self.assert_each_sample_once(report, epochs=40)
        self.assertEqual({task: count for task, count in cluster.starts.items()
                          if task[0] != "worker"},
                         {("scheduler", 0): 1, ("server", 0): 1, ("server", 1): 1})

    def test_a_job_without_its_chief_goes_on_from_the_newest_checkpoint(self):
        cluster = self.job({"chief": 1, "worker": 1, "ps": 1}, "--set", "train.epochs=60")
        wait_until(lambda: self.steps_logged() > 45, 60, "45 steps")
        cluster.kill("chief", 0)
        report = self.report_of(cluster)
        self.assertGreaterEqual(report["resumed_from_step"], 20, cluster.text())
        self.assert_each_sample_once(report, epochs=60)

    @unittest.skipUnless(two_hosts.can_be_made(), "network namespaces cannot be made here")
    def test_every_sample_is_used_once_whenever_a_link_is_cut(self):
        dice = random.Random(SEED)
        hosts = two_hosts.TwoHosts()
        self.addCleanup(hosts.end)
        beyond = {("worker", 1), ("ps", 1)}
        struck, number = 0, 0
        while struck < FAULTS:
            mode = ("stale", "sync", "async", "delay_compensated")[number % 4]
            name = f"run{number}"
            cluster = self.job({"chief": 1, "worker": 2, "ps": 2}, "--set",
                               f"ps.consistency={mode}", "--set", "train.epochs=80", name=name,
                               hosts=hosts, beyond=beyond)
            struck_here = []
            for _ in range(FAULTS_OF_A_RUN):
                time.sleep(dice.choice((0.1, 0.5, 1)))
                if cluster.look():
                    break
                struck_here.append(dice.choice(CUTS))
                hosts.cut()
                wait_until(cluster.look_until(time.monotonic() + struck_here[-1]), 60, "the cut")
                hosts.mend()
            told = f"seed {SEED}, run {number}, {mode}, cut for {struck_here} s\n"
            report = self.report_of(cluster, name, told)
            self.assert_each_sample_once(report, epochs=80)
            struck += FAULTS_OF_A_RUN
            number += 1

    def test_every_sample_is_used_once_whichever_task_is_killed(self):
        dice = random.Random(SEED)
        struck, number = 0, 0
        while struck < FAULTS:
            mode = ("async", "sync", "stale", "delay_compensated")[number % 4]
            name = f"run{number}"
            cluster = self.job({"chief": 1, "worker": 2, "ps": 2, "evaluator": 1}, "--set",
                               f"ps.consistency={mode}", "--set", "train.epochs=60", name=name)
            victims = []
            for _ in range(FAULTS_OF_A_RUN):
                time.sleep(dice.choice((0, 0.1, 0.5, 1)))
                if not cluster.look():
                    victims.append(dice.choice([("worker", 0), ("worker", 1), ("ps", 0),
                                                ("ps", 1), ("ps", 0), ("evaluator", 0)]))
                    cluster.kill(*victims[-1])
            told = f"seed {SEED}, run {number}, {mode}, {victims}\n"
            report = self.report_of(cluster, name, told)
            self.assert_each_sample_once(report, epochs=60)
            struck += FAULTS_OF_A_RUN
            number += 1


class WorkersInACluster(ServerTest):
    def test_workers_alone_are_elastic_when_they_are_told_so(self):
        cluster = Cluster(self, {"worker": 3}, *SMALL, *RULES, *SLOW, "--quiet", "--elastic",
                          "2:3", "--set", "train.epochs=30", "--set",
                          f"run.dir={self.folder / 'run'}", "--report", self.folder / "run.json")
        wait_until(lambda: cluster.look() or self.steps_logged() > 5, 60, "the first steps")
        cluster.kill("worker", 2)
        cluster.wait()
        report = json.loads((self.folder / "run.json").read_text())
        self.assertEqual(report["resumed_from_step"], 0)
        self.assertEqual(report["generations"][1]["lost_ranks"], [2])
        self.assertEqual(cluster.starts, {("worker", 0): 1, ("worker", 1): 1, ("worker", 2): 2})

    def test_what_a_restarted_task_would_do_wrongly_is_refused(self):
        config = {"cluster": {"worker": ["127.0.0.1:9", "127.0.0.1:8"]},
                  "task": {"type": "worker", "index": 0}}
        env = environment(TF_CONFIG=json.dumps(config))
        self.assert_refused((TRIREME, "train", DIGITS, "--fresh"), 2,
                            "--fresh in a job of a cluster", env=env)
        self.assert_refused((TRIREME, "train", DIGITS, "--elastic", "1:2"), 2, "without run.dir",
                            env=env)

    def test_numbers_that_do_not_fit_the_cluster_are_refused(self):
        config = {"cluster": {"worker": ["127.0.0.1:9", "127.0.0.1:8"]},
                  "task": {"type": "worker", "index": 1}}
        env = environment(TF_CONFIG=json.dumps(config))
        self.assert_refused((TRIREME, "train", DIGITS, "--elastic", "1:4"), 2,
                            "--elastic 1:4, but the cluster has 2 workers", "--elastic MIN:2",
                            env=env)
        self.assert_refused((TRIREME, "train", DIGITS), 2, "TRIREME_ELASTIC=1:4",
                            env={**env, "TRIREME_ELASTIC": "1:4"})


if __name__ == "__main__":
    unittest.main()
