"""The backends between processes give the same training, each by its name; and mpirun is a
launcher."""

import json
import shutil
import unittest

from support import DIGITS, TRIREME, SystemTest, environment

STEPS = ("--set", "train.steps=20")


def has_mpi():
    return shutil.which("mpirun") is not None


class Backends(SystemTest):
    def losses(self, report):
        return json.loads(report.read_text())["loss_history"]

    def reference(self):
        return self.train(*STEPS, name="reference")["loss_history"]

    def mpirun(self, *words, workers=2, name="mpi", under=(), code=0, **extra):
        """Runs `trireme train` under mpirun; returns the path of its report and its output."""
        report = self.folder / f"{name}.json"
        # mpirun needs these settings to run as root, and to start more ranks than there are cores.
        env = environment(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                          OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **extra)
        actual, out, err = self.run_to_end("mpirun", "-n", workers, "--oversubscribe", *under,
                                           TRIREME, "train", DIGITS, *STEPS, "--quiet",
                                           "--set", f"run.dir={self.folder / name}", "--report",
                                           report, *words, timeout=120, env=env)
        self.assertEqual(actual, code, f"{out}\n{err}")
        return report, out + err

    def test_each_backend_trains_as_one_device_does(self):
        reference = self.reference()
        for backend in ("shm", "tcp", "gloo"):
            report = self.train(*STEPS, "--workers", "2", "--set", f"comm.backend={backend}",
                                name=backend)
            self.assert_close(report["loss_history"], reference, 1e-5)

    def test_own_backends_run_every_algorithm_and_repeat_bit_for_bit(self):
        reference = self.reference()
        for backend in ("shm", "tcp"):
            for algorithm in ("naive", "ring", "halving_doubling"):
                words = (*STEPS, "--workers", "3", "--set", f"comm.backend={backend}", "--set",
                         f"strategy.all_reduce={algorithm}",
                         "--set", "strategy.share_parameters=false")
                first = self.train(*words, name=f"{backend}-{algorithm}-1")
                self.assert_close(first["loss_history"], reference, 1e-5)
                self.assertEqual(first["parameters_sha256"],
                                 self.train(*words,
                                            name=f"{backend}-{algorithm}-2")["parameters_sha256"])

    def test_processes_with_threads_train_over_tcp(self):
        report = self.train(*STEPS, "--workers", "2", "--set", "comm.backend=tcp", "--set",
                            "strategy.replicas=2", name="threads")
        self.assertEqual(report["world_size"], 4)
        self.assert_close(report["loss_history"], self.reference(), 1e-5)

    @unittest.skipUnless(has_mpi(), "there is no mpirun")
    def test_mpirun_is_a_launcher(self):
        report, _ = self.mpirun()
        found = json.loads(report.read_text())
        self.assertEqual((found["workers"], found["strategy"]), (2, "multi_worker"))
        self.assert_close(found["loss_history"], self.reference(), 1e-5)

    @unittest.skipUnless(has_mpi(), "there is no mpirun")
    def test_mpi_carries_the_gradients(self):
        reference = self.reference()
        for workers in (2, 3):
            report, _ = self.mpirun("--set", "comm.backend=mpi", workers=workers,
                                    name=f"mpi-{workers}")
            self.assert_close(self.losses(report), reference, 1e-5)

    @unittest.skipUnless(has_mpi(), "there is no mpirun")
    def test_workers_of_several_hosts_meet_through_mpi(self):
        # Each worker is told that it is alone on its host.
        apart = ("env", "OMPI_COMM_WORLD_LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_SIZE=1")
        report, _ = self.mpirun("--set", "comm.interface=lo", "--set", "comm.backend=mpi",
                                under=apart)
        self.assert_close(self.losses(report), self.reference(), 1e-5)

    @unittest.skipUnless(has_mpi(), "there is no mpirun")
    def test_bench_starts_mpirun_itself(self):
        code, out, err = self.run_to_end(TRIREME, "bench", "collectives", "--op", "all_reduce",
                                         "--bytes", "64KB", "--workers", "2", "--path", "mpi",
                                         "--steps", "3", "--json")
        self.assertEqual(code, 0, err)
        self.assertGreater(json.loads(out)["median_us"], 0)

    def test_mpi_without_mpirun_is_refused_with_the_remedy(self):
        self.assert_refused([TRIREME, "train", DIGITS, "--workers", "2", "--set",
                             "comm.backend=mpi", "--quiet"], 2, "mpirun -n 2")
        self.assert_refused([TRIREME, "launch", "--workers", "2", "--", TRIREME, "train", DIGITS,
                             "--set", "comm.backend=mpi", "--quiet"], 2,
                            "mpirun -n N")

    def test_an_unknown_backend_is_refused_with_the_known_ones(self):
        self.assert_refused([TRIREME, "train", DIGITS, "--workers", "2", "--set",
                             "comm.backend=pigeon"], 2, "pigeon", "tcp")


if __name__ == "__main__":
    unittest.main(verbosity=2)
