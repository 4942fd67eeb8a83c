"""torchrun, `trireme launch` and a direct start give the same training; and the programmes of
users."""

import json
import os
import random
import re
import shutil
import sys
import unittest

from made_files import write_picture_job, write_pictures
from support import BIN, DIGITS, ROOT, TRIREME, SystemTest, environment, free_port

STEPS = ("--set", "train.steps=20")


class Launchers(SystemTest):
    def torchrun(self, *words, workers=2, **options):
        options.setdefault("env", environment(OMP_NUM_THREADS="1"))
        return self.run_to_end(sys.executable, "-m", "torch.distributed.run", "--standalone",
                               "--nproc_per_node", workers, "--no_python", *words,
                               timeout=120, **options)

    def test_torchrun_starts_trireme_train(self):
        reference = self.train(*STEPS, "--workers", "2", name="reference")
        report = self.folder / "report.json"
        code, out, err = self.torchrun(TRIREME, "train", DIGITS, *STEPS, "--quiet", "--set",
                                       f"run.dir={self.folder / 'run'}", "--report", report)
        self.assertEqual(code, 0, f"{out}\n{err}")
        found = json.loads(report.read_text())
        self.assertEqual((found["workers"], found["strategy"]), (2, "multi_worker"))
        self.assertEqual(found["parameters_sha256"], reference["parameters_sha256"])

    def test_torchrun_with_a_token_publishes_the_coordinators_address(self):
        report = self.folder / "report.json"
        code, out, err = self.torchrun(TRIREME, "train", DIGITS, *STEPS, "--quiet", "--set",
                                       f"run.dir={self.folder / 'run'}", "--report", report,
                                       env=environment(OMP_NUM_THREADS="1",
                                                       TRIREME_JOB_TOKEN="a-token-of-this-job"))
        self.assertEqual(code, 0, f"{out}\n{err}")
        self.assertEqual(json.loads(report.read_text())["world_size"], 2)

    def write_images(self):
        """A configuration whose images are scaled twice, which costs more than all else."""
        images, config = self.folder / "images", self.folder / "images.yaml"
        write_pictures(images, random.Random(7))
        write_picture_job(config, images, '[decode, resize: "400:400", resize: "16:16", '
                          "random_crop: 12, normalise]", epochs=2)
        return images, config

    def test_the_workers_of_torchrun_take_the_place_of_a_cache_that_worker_0_chooses(self):
        _, config = self.write_images()
        plain = self.train("--workers", "2", config=config, name="plain")
        report = self.folder / "report.json"
        code, out, err = self.torchrun(TRIREME, "train", config, "--quiet", "--set",
                                       "data.cache=auto", "--set", f"run.dir={self.folder / 'run'}",
                                       "--report", report)
        self.assertEqual(code, 0, f"{out}\n{err}")
        line, = re.findall("input: a cache behind .*", out + err)
        self.assertIn("behind resize saves", line)
        found = json.loads(report.read_text())
        self.assert_close(found["loss_history"], plain["loss_history"], 1e-9)
        # They have it in common.
        cache = found["input"]["cache"]
        self.assertEqual((cache["place"], cache["samples"]), ("memory", 72))

    def start_two_ranks(self, config, *words_of_ranks):
        """Starts two workers as torchrun does, without its agent, which ends all with one."""
        port = str(free_port())
        return [self.start(
            TRIREME, "train", config, "--set", "data.cache=auto", "--set",
            f"run.dir={self.folder / 'run'}", *words, env=environment(
                OMP_NUM_THREADS="1", TRIREME_JOB_TOKEN="a-token-of-this-job", RANK=str(rank),
                WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1", MASTER_PORT=port))
            for rank, words in enumerate(words_of_ranks)]

    def test_all_workers_hear_that_worker_0_cannot_choose(self):
        images, config = self.write_images()
        for file in images.glob("*/*.png"):
            file.write_bytes(file.read_bytes()[:200])
        processes = self.start_two_ranks(config, (), ())
        ends = [process.communicate(timeout=60) for process in processes]
        for process, (out, err) in zip(processes, ends):
            self.assertEqual(process.returncode, 1, f"{out}\n{err}")
            self.assertIn(".png", err)
        self.assertIn("worker 0 cannot choose", ends[1][1])

    def test_another_input_than_that_of_worker_0_is_named(self):
        _, config = self.write_images()
        other = ("--set", "data.stages=decode | resize(12:12) | normalise")
        for process in self.start_two_ranks(config, (), other):
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 2, f"{out}\n{err}")
            self.assertIn("data.stages", err)

    def test_workers_of_which_one_alone_asks_for_a_choice_are_told(self):
        _, config = self.write_images()
        fixed = ("--set", "data.cache=stages")
        for words in (fixed, ()), ((), fixed):
            with self.subTest(words=words):
                for process in self.start_two_ranks(config, *words):
                    out, err = process.communicate(timeout=60)
                    self.assertEqual(process.returncode, 2, f"{out}\n{err}")
                    self.assertIn("data.cache", err)

    def test_the_workers_of_an_elastic_cluster_choose_for_themselves(self):
        _, config = self.write_images()
        plain = self.train(config=config, name="plain")
        cluster = {"worker": [f"127.0.0.1:{free_port()}" for _ in range(2)]}
        report = self.folder / "report.json"
        processes = [self.start(
            TRIREME, "train", config, "--elastic", "2:2", "--set", "data.cache=auto", "--set",
            f"run.dir={self.folder / 'run'}", "--report", report, env=environment(
                OMP_NUM_THREADS="1", TRIREME_JOB_TOKEN="a-token-of-this-job", TF_CONFIG=json.dumps(
                    {"cluster": cluster, "task": {"type": "worker", "index": index}})))
            for index in range(2)]
        for process in processes:
            out, err = process.communicate(timeout=90)
            self.assertEqual(process.returncode, 0, f"{out}\n{err}")
            self.assertIn("input: a cache behind resize saves", out + err)
        found = json.loads(report.read_text())
        self.assert_close(found["loss_history"], plain["loss_history"], 1e-9)
        self.assertEqual(found["samples"]["lost"] + found["samples"]["repeated"], 0)

    def start_tasks(self, environments, *words):
        """Starts a process for each environment; returns their reports' path and the processes."""
        report = self.folder / "report.json"
        return report, [self.start(TRIREME, "train", DIGITS, *STEPS, "--quiet", "--set",
                                   f"run.dir={self.folder / 'run'}", "--report", report, *words,
                                   env=environment(OMP_NUM_THREADS="1", **each))
                        for each in environments]

    def assert_all_end_well(self, processes):
        for process in processes:
            out, err = process.communicate(timeout=90)
            self.assertEqual(process.returncode, 0, f"{out}\n{err}")

    def test_a_cluster_of_tf_config_trains(self):
        """The chief is worker 0; a token in the environment or the host's token file joins them."""
        reference = self.train(*STEPS, "--workers", "3", name="reference")
        for token in ({}, {"TRIREME_JOB_TOKEN": "a-token-of-this-job"}):
            with self.subTest(token=token):
                cluster = {"chief": [f"127.0.0.1:{free_port()}"],
                           "worker": [f"127.0.0.1:{free_port()}" for _ in range(2)]}
                tasks = [("worker", 1), ("chief", 0), ("worker", 0)]
                report, processes = self.start_tasks(
                    [{"TF_CONFIG": json.dumps({"cluster": cluster,
                                               "task": {"type": role, "index": index}}), **token}
                     for role, index in tasks])
                self.assert_all_end_well(processes)
                found = json.loads(report.read_text())
                self.assertEqual(found["world_size"], 3)
                self.assertEqual(found["parameters_sha256"], reference["parameters_sha256"])
                shutil.rmtree(self.folder / "run")

    def test_a_cluster_of_tf_config_trains_with_servers(self):
        steps = ("--set", "train.dtype=float64")
        reference = self.train(*STEPS, *steps, name="reference")
        servers = ("--set", "strategy.name=parameter_server")
        cluster = {"chief": [f"127.0.0.1:{free_port()}"], "worker": [f"127.0.0.1:{free_port()}"],
                   "ps": [f"127.0.0.1:{free_port()}" for _ in range(2)]}
        report, processes = self.start_tasks(
            [{"TF_CONFIG": json.dumps({"cluster": cluster,
                                       "task": {"type": role, "index": index}})}
             for role, index in (("ps", 1), ("worker", 0), ("ps", 0), ("chief", 0))], *steps,
            *servers)
        self.assert_all_end_well(processes)
        found = json.loads(report.read_text())
        self.assertEqual(found["strategy"], "parameter_server")
        self.assertEqual(found["parameter_server"]["servers"], 2)
        self.assert_close(found["loss_history"], reference["loss_history"], 1e-10)

    def assert_curve_reaches(self, report):
        lines = (self.folder / "run" / "evaluator.jsonl").read_text().splitlines()
        self.assertEqual(json.loads(lines[-1])["step"], report["steps"])

    def test_a_cluster_of_tf_config_has_every_role(self):
        cluster = {"chief": [f"127.0.0.1:{free_port()}"],
                   "worker": [f"127.0.0.1:{free_port()}" for _ in range(2)],
                   "ps": [f"127.0.0.1:{free_port()}" for _ in range(2)],
                   "evaluator": [f"127.0.0.1:{free_port()}"]}
        tasks = [(role, index) for role, all_of in cluster.items() for index in range(len(all_of))]
        report, processes = self.start_tasks(
            [{"TF_CONFIG": json.dumps({"cluster": cluster,
                                       "task": {"type": role, "index": index}})}
             for role, index in reversed(tasks)], "--set", "strategy.name=parameter_server",
            "--set", "checkpoint.every=5 steps")
        self.assert_all_end_well(processes)
        found = json.loads(report.read_text())
        self.assertEqual(found["roles"], {"chief": 1, "worker": 2, "ps": 2, "evaluator": 1})
        self.assert_curve_reaches(found)

    def test_an_evaluator_that_tf_config_does_not_list_takes_part(self):
        """TFJob lists no evaluator in the cluster."""
        cluster = {"worker": [f"127.0.0.1:{free_port()}" for _ in range(2)]}
        report, processes = self.start_tasks(
            [{"TF_CONFIG": json.dumps({"cluster": cluster,
                                       "task": {"type": role, "index": index}})}
             for role, index in (("evaluator", 0), ("worker", 0), ("worker", 1))],
            "--set", "checkpoint.every=5 steps")
        self.assert_all_end_well(processes)
        self.assert_curve_reaches(json.loads(report.read_text()))

    def test_a_step_of_slurm_has_servers_and_an_evaluator(self):
        common = {"SLURM_JOB_ID": str(free_port()), "SLURM_STEP_ID": "0",
                  "SLURM_STEP_NUM_TASKS": "4", "SLURM_NODEID": "0",
                  "SLURM_STEP_NODELIST": "here", "SLURM_STEP_TASKS_PER_NODE": "4",
                  "MASTER_PORT": str(free_port()), "TRIREME_PS": "1", "TRIREME_EVALUATOR": "1"}
        numbered = [{"SLURM_PROCID": str(task), "SLURM_LOCALID": str(task), **common}
                    for task in range(4)]
        for task, words in ((0, "worker 0 of 2"), (2, "ps 0"), (3, "evaluator 0")):
            code, out, err = self.run_to_end(TRIREME, "doctor", env=environment(**numbered[task]))
            self.assertEqual(code, 0, err)
            self.assertIn(words, out)
            self.assertIn("srun", out)
        report, processes = self.start_tasks(numbered, "--set", "strategy.name=parameter_server",
                                             "--set", "checkpoint.every=5 steps")
        self.assert_all_end_well(processes)
        found = json.loads(report.read_text())
        self.assertEqual(found["roles"], {"worker": 2, "ps": 1, "evaluator": 1})
        self.assert_curve_reaches(found)
        code, _, err = self.run_to_end(TRIREME, "doctor",
                                       env=environment(**{**numbered[0], "TRIREME_PS": "4"}))
        self.assertEqual(code, 2)
        self.assertIn("TRIREME_PS=4", err)

    def test_a_job_of_dmlc_trains_with_a_server(self):
        common = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(free_port()),
                  "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1"}
        report, processes = self.start_tasks(
            [{"DMLC_ROLE": role, **number, **common}
             for role, number in (("worker", {"DMLC_WORKER_ID": "1"}),
                                  ("server", {"DMLC_SERVER_ID": "0"}), ("scheduler", {}),
                                  ("worker", {"DMLC_WORKER_ID": "0"}))],
            "--set", "strategy.name=parameter_server")
        self.assert_all_end_well(processes)
        found = json.loads(report.read_text())
        self.assertEqual((found["workers"], found["parameter_server"]["servers"]), (2, 1))

    def test_a_step_of_slurm_trains(self):
        common = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2",
                  "SLURM_NODEID": "0", "SLURM_STEP_NODELIST": "here",
                  "SLURM_STEP_TASKS_PER_NODE": "2"}
        report, processes = self.start_tasks(
            [{"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), **common} for rank in (1, 0)])
        self.assert_all_end_well(processes)
        self.assertEqual(json.loads(report.read_text())["world_size"], 2)

    def test_wrong_variables_of_a_cluster_are_refused(self):
        one = {"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "worker", "index": 1}}
        two_chiefs = {"cluster": {"chief": ["a:1", "b:1"]}, "task": {"type": "chief"}}
        for value, words in (("{", ("TF_CONFIG", "byte 2")),
                             (json.dumps(one), ("TF_CONFIG", "the task is worker 1")),
                             (json.dumps(two_chiefs), ("TF_CONFIG", "2 chiefs"))):
            with self.subTest(value):
                for command in (["train", DIGITS], ["doctor"]):
                    code, out, err = self.run_to_end(TRIREME, *command,
                                                     env=environment(TF_CONFIG=value))
                    self.assertEqual(code, 2, f"{out}\n{err}")
                    for word in words:
                        self.assertIn(word, err)

    def test_trireme_launch_starts_trireme_train(self):
        report = self.folder / "report.json"
        code, out, err = self.run_to_end(TRIREME, "launch", "--workers", "2", "--", TRIREME,
                                         "train", DIGITS, *STEPS, "--quiet", "--set",
                                         f"run.dir={self.folder / 'run'}", "--report", report)
        self.assertEqual(code, 0, err)
        self.assertEqual(json.loads(report.read_text())["world_size"], 2)

    def test_the_report_on_standard_output_is_json_alone(self):
        for words in ((), ("--workers", "2"), ("--set", "strategy.replicas=2")):
            code, out, err = self.run_to_end(TRIREME, "train", DIGITS, *STEPS, "--json", *words)
            self.assertEqual(code, 0, err)
            self.assertEqual(json.loads(out)["steps"], 20)

    def test_doctor_prints_what_it_understood(self):
        code, out, err = self.run_to_end(TRIREME, "doctor")
        self.assertEqual(code, 0, err)
        for part in ("alone", "decided by no variable", "LibTorch 2.", "gloo: compiled in",
                     "digits"):
            self.assertIn(part, out)
        code, out, err = self.run_to_end(TRIREME, "doctor", env=environment(
            JOB_COMPLETION_INDEX="1", WORLD_SIZE="2", MASTER_ADDR="train-0.train",
            SLURM_JOB_ID="7"))
        self.assertEqual(code, 0, err)
        for part in ("worker 1 of 2", "train-0.train:29500", "decided by WORLD_SIZE=2",
                     "ignored SLURM_JOB_ID=7 (srun)"):
            self.assertIn(part, out)
        code, out, err = self.run_to_end(TRIREME, "launch", "--workers", "2", "--", TRIREME,
                                         "doctor")
        self.assertEqual(code, 0, err)
        self.assertIn("worker 1 of 2", out)
        code, out, err = self.run_to_end(TRIREME, "doctor", "--json")
        self.assertEqual(json.loads(out)["backends"]["gloo"], "compiled in")

    def test_threads_follow_the_cores_that_the_job_may_use(self):
        env = environment()
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            env.pop(name, None)

        def on_one_core():
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

        def printed(*words):
            code, out, err = self.run_to_end(*words, env=env, preexec_fn=on_one_core)
            self.assertEqual(code, 0, err)
            return out

        found = json.loads(printed(TRIREME, "doctor", "--json"))
        self.assertEqual(found["host"]["cores"], 1)
        self.assertEqual(printed(TRIREME, "launch", "--workers", "1", "--no-prefix", "--", "sh",
                                 "-c", "echo $OMP_NUM_THREADS"), "1\n")

    def test_plan_prints_the_plans_for_any_world_size_without_torch(self):
        for workers in (1, 3, 16):
            code, out, err = self.run_to_end(TRIREME, "plan", DIGITS, "--workers", workers)
            self.assertEqual(code, 0, err)
            self.assertIn(f"{workers} workers", out)
        maps = os.popen(f"ldd {TRIREME}").read()
        self.assertNotIn("torch", maps)

    def test_bench_prints_the_figures_that_scripts_read(self):
        for path in ("threads", "gloo"):
            code, out, err = self.run_to_end(TRIREME, "bench", "step", "--model", "tiny",
                                             "--batch", "4", "--workers", "2", "--path", path,
                                             "--steps", "3", "--json")
            self.assertEqual(code, 0, err)
            figures = json.loads(out)
            for key in ("median_ms", "min_ms", "samples_per_second", "cpu_seconds_per_step"):
                self.assertGreater(figures[key], 0)
            code, out, err = self.run_to_end(TRIREME, "bench", "collectives", "--op", "all_reduce",
                                             "--bytes", "64KB", "--workers", "2", "--path", path,
                                             "--algorithm", "auto", "--steps", "3", "--json")
            self.assertEqual(code, 0, err)
            for key in ("median_us", "min_us", "bus_gbytes_per_second"):
                self.assertGreater(json.loads(out)[key], 0)

    def test_mnist_in_idx_format_trains(self):
        # The digits are written as IDX files with the same pixels, so the model learns as well.
        import gzip
        import struct
        rows = [list(map(int, line.split(","))) for line in gzip.open(ROOT / "data/digits.csv.gz",
                                                                      "rt")]
        images, labels = self.folder / "images.gz", self.folder / "labels"
        images.write_bytes(gzip.compress(struct.pack(">IIII", 0x803, len(rows), 8, 8)
                                         + bytes(p * 15 for row in rows for p in row[:64])))
        labels.write_bytes(struct.pack(">II", 0x801, len(rows)) + bytes(row[64] for row in rows))
        report = self.train("--set", "data.name=idx", "--set", f"data.images={images}", "--set",
                            f"data.labels={labels}", "--workers", "2", "--set",
                            "train.epochs=6")
        self.assertGreater(report["eval"]["accuracy"], 0.9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
