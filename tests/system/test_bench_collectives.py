"""`trireme bench collectives`: it prints figures for scripts, writes tables that training uses,
and refuses wrong input before anything starts."""

import json
import unittest

from support import DIGITS, TRIREME, SystemTest, environment, free_port

ALGORITHMS = ("naive", "direct", "ring", "recursive_doubling", "halving_doubling", "tree",
              "hierarchical")


class BenchCollectives(SystemTest):
    def bench(self, *words, **options):
        return self.run_to_end(TRIREME, "bench", "collectives", *words, **options)

    def test_every_path_and_algorithm_prints_one_json_object(self):
        for path, algorithms in (("threads", ALGORITHMS), ("tcp", ("auto", "tree")),
                                 ("shm", ("auto", *ALGORITHMS))):
            for algorithm in algorithms:
                code, out, err = self.bench("--bytes", "4KB", "--workers", "3", "--path", path,
                                            "--algorithm", algorithm, "--steps", "3", "--json")
                self.assertEqual(code, 0, err)
                figures = json.loads(out)
                self.assertEqual((figures["path"], figures["algorithm"], figures["workers"]),
                                 (path, algorithm, 3))
                self.assertGreater(figures["bus_gbytes_per_second"], 0)

    def test_shared_tensors_are_reduced_on_paths_that_share_memory(self):
        for path in ("threads", "shm"):
            code, out, err = self.bench("--bytes", "64KB", "--workers", "3", "--path", path,
                                        "--shared-tensors", "--steps", "3", "--json")
            self.assertEqual(code, 0, err)
            self.assertEqual(json.loads(out)["tensors"], "shared")

    def test_launchers_of_several_hosts_measure_together(self):
        rendezvous = f"127.0.0.1:{free_port()}"
        env = environment(TRIREME_JOB_TOKEN="a token of this test")
        words = [TRIREME, "bench", "collectives", "--bytes", "4KB", "--path", "tcp", "--steps",
                 "3", "--json", "--nodes", "2", "--rendezvous",
                 rendezvous]
        other = self.start(*words, "--node", "1", env=env)
        code, out, err = self.run_to_end(*words, "--node", "0", env=env)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(out)["workers"], 2)
        self.assertEqual(other.wait(timeout=30), 0)

    def test_a_tuned_table_grows_and_is_used_by_training(self):
        table = self.folder / "table.json"
        for workers in ("2", "3"):
            code, _, err = self.bench("--tune", "--op", "broadcast", "--workers", workers,
                                      "--steps", "1", "--output", table, timeout=120)
            self.assertEqual(code, 0, err)
        rows = json.loads(table.read_text())["rows"]
        self.assertEqual([(row["path"], row["collective"], row["ranks"], row["hosts"])
                          for row in rows],
                         [("threads", "broadcast", 2, 1), ("threads", "broadcast", 3, 1)])
        report = self.train("--set", f"comm.table={table}", "--set", "strategy.replicas=3",
                            "--set", "train.steps=2")
        self.assertEqual(report["world_size"], 3)

    def test_a_table_for_shared_memory_is_tuned_and_used_by_training(self):
        table = self.folder / "table.json"
        code, _, err = self.bench("--tune", "--op", "all_reduce", "--path", "shm", "--workers",
                                  "2", "--steps", "1", "--output", table, timeout=120)
        self.assertEqual(code, 0, err)
        rows = json.loads(table.read_text())["rows"]
        self.assertEqual([(row["path"], row["collective"], row["ranks"], row["hosts"])
                          for row in rows], [("shm", "all_reduce", 2, 1)])
        report = self.train("--set", f"comm.table={table}", "--workers", "2", "--set",
                            "strategy.share_parameters=false", "--set", "train.steps=2")
        self.assertEqual(report["world_size"], 2)

    def test_wrong_input_is_refused_with_the_right_choices(self):
        broken = self.folder / "broken.json"
        broken.write_text('{"rows": [7]}')
        for words, part in (
            (("--op", "scan"), "all_reduce, reduce_scatter, all_gather, broadcast"),
            (("--path", "pigeon"), "threads, shm, tcp, gloo"),
            (("--algorithm", "rign"), "naive, direct, ring"),
            (("--op", "broadcast", "--algorithm", "direct"), "naive, ring, tree, hierarchical"),
            (("--path", "gloo", "--algorithm", "ring"), "--path threads or shm or tcp"),
            (("--path", "gloo", "--tune"), "--path threads or shm or tcp"),
            (("--output", "x"), "--tune"),
            (("--tune", "--output", broken), "row 0 is 7"),
            (("--shared-tensors", "--path", "tcp"), "one host, --path threads, shm"),
            (("--shared-tensors", "--path", "shm", "--nodes", "2", "--rendezvous", "127.0.0.1:9"),
             "share no memory"),
            (("--shared-tensors", "--op", "broadcast"), "--op all_reduce"),
            (("--shared-tensors", "--tune"), "no --tune"),
            (("--path", "threads", "--nodes", "2"), "--path tcp, shm or gloo"),
        ):
            code, out, err = self.bench(*words)
            self.assertEqual((code, out), (2, ""), words)
            self.assertIn(part, err)
        code, _, err = self.run_to_end(TRIREME, "train", DIGITS, "--set", f"comm.table={broken}")
        self.assertEqual(code, 2)
        self.assertIn("row 0 is 7", err)


if __name__ == "__main__":
    unittest.main()
