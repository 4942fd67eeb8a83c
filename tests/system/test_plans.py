"""`trireme plan` says what `trireme train` does: the plan with the same digest, the operations and
bytes of each step, and the elements that each rank updates."""

import json
import unittest

import two_hosts
from support import DIGITS, TRIREME, SystemTest, environment, free_port, settings

STEPS = 8  # A power of two: a mean over the steps, times their number, is exact.

LENGTH = settings(f"train.steps={STEPS}", "train.evaluate_every=0", "monitor.tensorboard=false")
SMALL = settings("model.name=mlp", "model.hidden=[64,32]")
APART = "strategy.share_parameters=false"
SEVERAL_BUCKETS = ("strategy.bucket_bytes=8KiB", "strategy.first_bucket_bytes=2KiB")
COMPRESSIONS = ("bf16", "fp16", "int8", "topk", "powersgd")


def workers(number, *pairs):
    """Returns the words of a run of a small model, whose gradients fit into one bucket."""
    return ["--workers", number, *SMALL, *settings(*pairs)]


def times(operation):
    """Returns how often an operation takes place in the first STEPS steps."""
    steps = operation.get("steps", {"first": 1, "last": -1, "every": 1})
    end = STEPS if steps["last"] < 0 else min(steps["last"], STEPS)
    return max(0, (end - steps["first"] + 1) // steps["every"])


def planned(plan, what):
    """Returns the sum over rank 0's operations in the first STEPS steps."""
    return sum(operation[what][0] * times(operation) for operation in plan["operations"])


class PlanTest(SystemTest):
    def plan(self, *words):
        code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, "--json", *words)
        self.assertEqual(code, 0, f"{out}\n{err}")
        return json.loads(out)

    def assert_as_planned(self, exchange, plan, report):
        """Checks that the run did what the plan says. `exchange` is the kind that is expected."""
        self.assertEqual(plan["exchange"], exchange)
        self.assertEqual(report["steps"], STEPS)
        self.assertEqual(report["plan_digest"], plan["digest"])
        self.assertEqual(report["input_plan_digest"], plan["input_plan"]["digest"])
        self.assertEqual(report["updated_elements"],
                         [sum(end - begin for _, begin, end in slices)
                          for slices in plan["shards"]["ranks"]])
        operations, sent = planned(plan, "operations"), planned(plan, "bytes_sent")
        in_place = exchange == "shared" and plan["placement"]["between"] is None
        sends_nothing = in_place or plan["world_size"] == 1
        self.assertEqual((operations == 0, sent == 0), (sends_nothing, sends_nothing))
        ran_operations = report["exchange_operations_per_step"] * STEPS
        ran_sent = report["exchange_bytes_per_step"] * STEPS
        if plan["follows_ready_order"] and len(plan["buckets"]["buckets"]) > 1:
            # The first backward shows in which order gradients become ready, and the engine then
            # plans its buckets anew in that order. They may end at other parameters, be more or
            # fewer, and have other remainders of chunks. The gradients are the same.
            self.assertAlmostEqual(ran_sent, sent, delta=0.01 * sent)
        else:
            self.assertEqual((ran_operations, ran_sent), (operations, sent))

    def check(self, cases):
        """`cases`: by name, the kind of the exchange and the words of the run."""
        for name, (exchange, words) in cases.items():
            with self.subTest(name):
                plan = self.plan(*LENGTH, *words)
                self.assert_as_planned(exchange, plan, self.train(*LENGTH, *words, name=name))

    def start_nodes(self, words, name, of_second=(), prefixes=((), ()), address="127.0.0.1"):
        """Starts two launchers. Without `prefixes`, the words before each node's command, both are
        on this host, but have no memory in common."""
        rendezvous = f"{address}:{free_port()}"
        return [self.start(*prefixes[node], TRIREME, "train", DIGITS, *words,
                           *(of_second if node == 1 else ()), "--nodes", 2, "--node", node,
                           "--rendezvous", rendezvous, "--quiet", "--set",
                           f"run.dir={self.folder / name}",
                           env=environment(TRIREME_HOST=f"node{node}",
                                           TRIREME_JOB_TOKEN="a token of this test of plans"))
                for node in range(2)]

    def check_on_nodes(self, cases, **options):
        for name, (exchange, words) in cases.items():
            with self.subTest(name):
                plan = self.plan(*LENGTH, *words, "--nodes", 2)
                self.assertIsNotNone(plan["placement"]["between"])
                launchers = self.start_nodes([*LENGTH, *words], name, **options)
                for launcher in launchers:
                    _, err = launcher.communicate(timeout=90)
                    self.assertEqual(launcher.returncode, 0, err)
                report = json.loads((self.folder / name / "report.json").read_text())
                self.assert_as_planned(exchange, plan, report)


class RunsItsPlan(PlanTest):
    def test_of_one_process(self):
        self.check({
            "one_device": ("all_reduce", [*SMALL, *settings("strategy.name=one_device")]),
            "mirrored-2": ("shared", [*SMALL, *settings("strategy.name=mirrored",
                                                        "strategy.replicas=2")]),
            "mirrored-3": ("shared", [*SMALL, *settings("strategy.name=mirrored",
                                                        "strategy.replicas=3")]),
            "mirrored-3-apart": ("all_reduce", [*SMALL, *settings("strategy.name=mirrored",
                                                                  "strategy.replicas=3", APART)]),
        })

    def test_of_processes_with_memory_in_common(self):
        self.check({
            "shared-2": ("shared", workers(2)),
            "shared-3": ("shared", workers(3)),
            "shared-2x2": ("shared", workers(2, "strategy.replicas=2")),
            "shared-bfloat16": ("shared", workers(2, "train.dtype=bfloat16")),
            "apart-2": ("all_reduce", workers(2, APART)),
            "apart-2x2": ("all_reduce", workers(2, "strategy.replicas=2", APART)),
            "apart-ring": ("all_reduce", workers(3, APART, "strategy.all_reduce=ring")),
            "apart-float64": ("all_reduce", workers(3, APART, "train.dtype=float64")),
            "apart-several-buckets": ("all_reduce", workers(3, APART, *SEVERAL_BUCKETS)),
        })

    def test_of_processes_that_send_while_backward_computes(self):
        tcp, gloo = "comm.backend=tcp", "comm.backend=gloo"
        self.check({
            "tcp-2": ("all_reduce", workers(2, tcp)),
            "tcp-3": ("all_reduce", workers(3, tcp)),
            # A ring sends as much for many buckets as for few. Other algorithms may be chosen for
            # large buckets only.
            "tcp-several-buckets": ("all_reduce", workers(3, tcp, "strategy.all_reduce=ring",
                                                          *SEVERAL_BUCKETS)),
            # The replicas of a process share parameters, and the first one speaks with others.
            "tcp-2x2": ("shared", workers(2, tcp, "strategy.replicas=2")),
            "gloo-2": ("all_reduce", workers(2, gloo)),
            "gloo-3": ("all_reduce", workers(3, gloo)),
            "gloo-several-buckets": ("all_reduce", workers(3, gloo, *SEVERAL_BUCKETS)),
        })

    def test_of_the_example_as_it_ships(self):
        self.check({
            "cnn-shared": ("shared", ["--workers", 2]),
            "cnn-apart": ("all_reduce", ["--workers", 2, *settings(APART)]),
            "cnn-tcp": ("all_reduce", ["--workers", 2, *settings("comm.backend=tcp")]),
        })

    def test_with_compression(self):
        # On one host compression takes the place of sharing.
        self.check({
            f"{compression}-{backend}": ("all_reduce",
                                         workers(2, f"strategy.compression={compression}",
                                                 f"comm.backend={backend}"))
            for compression in COMPRESSIONS for backend in ("shm", "tcp")})

    def test_with_local_steps(self):
        local = "strategy.local_steps=4"
        self.check({
            "local": ("local_steps", workers(2, local)),
            "local-momentum": ("local_steps", workers(3, local, "strategy.local_momentum=true")),
            "local-after": ("local_steps", workers(2, local, "strategy.local_after=2")),
            "local-after-tcp": ("local_steps", workers(2, local, "strategy.local_after=2",
                                                       "comm.backend=tcp")),
        })

    def test_with_virtual_shards(self):
        shards = "reproducible.virtual_shards=8"
        self.check({
            "virtual-1": ("reproducible", workers(1, shards)),
            "virtual-2": ("reproducible", workers(2, shards)),
            "virtual-3": ("reproducible", workers(3, shards)),
            "virtual-3-tcp": ("reproducible", workers(3, shards, "comm.backend=tcp",
                                                      *SEVERAL_BUCKETS)),
        })

    def test_of_shards(self):
        def sharded(number, level, *pairs):
            return "own", workers(number, "strategy.name=sharded", f"shard.level={level}", APART,
                                  "model.hidden=[512,256]", *pairs)

        self.check({
            **{f"level-{level}": sharded(number, level) for level, number in
               ((1, 2), (2, 3), (3, 2))},
            **{f"level-{level}-tcp": sharded(3, level, "comm.backend=tcp") for level in (1, 2, 3)},
            "level-3-bfloat16": sharded(2, 3, "train.dtype=bfloat16"),
            "level-2-threads": ("own", [*SMALL, *settings("strategy.name=sharded", "shard.level=2",
                                                          "strategy.replicas=2", APART)]),
        })

    def test_of_elastic_jobs(self):
        for name, exchange, words in (
                ("elastic", "shared", workers(2)),
                ("elastic-norm", "shared", workers(3, "train.clip_norm=1")),
                ("elastic-lamb", "all_reduce", workers(2, "optimizer.name=lamb"))):
            with self.subTest(name):
                plan = self.plan(*LENGTH, *words, "--elastic")
                report = self.train(*LENGTH, *words, "--elastic", f"2:{words[1]}", name=name)
                self.assert_as_planned(exchange, plan, report)

    def test_of_two_hosts(self):
        # The first host has two workers, and the second one has one.
        self.check_on_nodes({
            "hosts-shared": ("shared", workers(3)),
            "hosts-shared-several-buckets": ("shared", workers(3, *SEVERAL_BUCKETS)),
            "hosts-shared-int8": ("shared", workers(3, "strategy.compression=int8")),
            "hosts-apart": ("all_reduce", workers(3, APART)),
            "hosts-apart-topk": ("all_reduce", workers(3, APART, "strategy.compression=topk")),
            "hosts-virtual": ("reproducible", workers(3, "reproducible.virtual_shards=8")),
            "hosts-local": ("local_steps", workers(3, "strategy.local_steps=4")),
            "hosts-alone": ("all_reduce", workers(2)),
        })

    # TCP knows hosts by their addresses, so two hosts need two of them.
    @unittest.skipUnless(two_hosts.can_be_made(), "network namespaces cannot be made here")
    def test_of_two_hosts_over_tcp(self):
        hosts = two_hosts.TwoHosts()
        self.addCleanup(hosts.end)
        self.check_on_nodes({"hosts-tcp": ("all_reduce", workers(3, "comm.backend=tcp"))},
                            prefixes=(hosts.on(0), hosts.on(1)), address=hosts.addresses[0])


class Plan(PlanTest):
    def test_two_configurations_have_two_digests(self):
        words = {
            "1": workers(1),
            "2": workers(2),
            "3": workers(3),
            "2 threads": workers(1, "strategy.name=mirrored", "strategy.replicas=2"),
            "2 nodes": [*workers(2), "--nodes", 2],
            "tcp": workers(2, "comm.backend=tcp"),
            "apart": workers(2, APART),
            "ring": workers(2, APART, "strategy.all_reduce=ring"),
            "buckets": workers(2, *SEVERAL_BUCKETS),
            "model": workers(2, "model.hidden=[64,33]"),
            "dtype": workers(2, "train.dtype=float64"),
            "batch": workers(2, "data.batch=32"),
            "seed": workers(2, "train.seed=2"),
            "local steps": workers(2, "strategy.local_steps=4"),
            "more local steps": workers(2, "strategy.local_steps=8"),
            "virtual shards": workers(2, "reproducible.virtual_shards=8"),
            "rank": workers(2, "strategy.compression=powersgd", "strategy.compression_rank=1"),
            **{name: workers(2, f"strategy.compression={name}") for name in COMPRESSIONS},
        }
        named = {}
        for name, of_run in words.items():
            digest = self.plan(*of_run)["digest"]
            self.assertRegex(digest, r"^[0-9a-f]{16}$")
            self.assertNotIn(digest, named, f"'{name}' and '{named.get(digest)}'")
            named[digest] = name
            self.assertEqual(self.plan(*of_run)["digest"], digest)

    def test_is_printed_for_people_with_its_digest_and_operations(self):
        words = workers(3, "comm.backend=tcp")
        code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, *words)
        self.assertEqual(code, 0, err)
        for part in (f"plan {self.plan(*words)['digest']}: ", "operations of rank 0 in a step",
                     "gradients of bucket 0, and facts", "all_reduce over tcp"):
            self.assertIn(part, out)

    def test_of_more_nodes_than_workers_is_refused(self):
        for nodes in (3, 0):
            err = self.assert_refused([TRIREME, "plan", DIGITS, "--workers", 2, "--nodes", nodes],
                                      2, f"--nodes {nodes} with 2 workers", "at least 1 node")
            self.assertIn("; try: ", err)


class NodesThatDiffer(PlanTest):
    def test_are_refused_by_the_name_of_the_option(self):
        for number, pair in enumerate((APART, "strategy.bucket_bytes=1MiB")):
            with self.subTest(pair):
                launchers = self.start_nodes([*LENGTH, *workers(2)], f"differ-{number}",
                                             of_second=settings(pair))
                for launcher in launchers:
                    _, err = launcher.communicate(timeout=60)
                    self.assertEqual(launcher.returncode, 2, err)
                    for part in (pair.split("=")[0], "worker 0", "worker 1"):
                        self.assertIn(part, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
