"""Wrong input: one clear message with place, value and remedy; a non-zero exit code; nothing hangs
and nothing is damaged."""

import gzip
import os
import pathlib
import socket
import struct
import time
import unittest

from support import DIGITS, ROOT, TRIREME, SystemTest, environment, free_port, wait_until


def idx(path, magic, dims, content):
    path.write_bytes(struct.pack(f">I{len(dims)}I", magic, *dims) + content)


class WrongInput(SystemTest):
    def refused(self, *words, parts, code=2, **options):
        err = self.assert_refused([TRIREME, "train", *words], code, *parts, **options)
        self.assertIn("; try: ", err)
        return err

    def write_config(self, text):
        path = self.folder / "config.yaml"
        path.write_text(text)
        return path

    def test_an_unknown_key_names_the_nearest(self):
        self.refused(DIGITS, "--set", "optimizer.learning_rte=1", parts=["optimizer.learning_rte"])
        self.refused(DIGITS, "--set", "data.bach=64", parts=["data.bach", "data.batch"])
        self.refused(self.write_config("data:\n  name: digits\n  bach: 3\n"),
                     parts=["config.yaml", "3", "data.bach", "data.batch"])

    def test_a_wrong_type_and_a_value_out_of_range(self):
        self.refused(DIGITS, "--set", "data.batch=many", parts=["data.batch", "many"])
        self.refused(DIGITS, "--set", "optimizer.lr=-1", parts=["optimizer.lr", "-1"])
        self.refused(DIGITS, "--set", "strategy.name=miror",
                     parts=["strategy.name", "miror", "mirrored"])
        self.refused(DIGITS, "--set", "train.steps", parts=["train.steps"])

    def test_a_missing_configuration_and_broken_yaml(self):
        self.refused("nowhere.yaml", parts=["nowhere.yaml"])
        self.refused(self.write_config("data: [1, 2\n"), parts=["config.yaml"])

    def assert_usage(self, *words, says):
        """Checks that `trireme words` is refused with exactly this one line."""
        code, out, err = self.run_to_end(TRIREME, *words)
        self.assertEqual((code, out, err), (2, "", f"trireme: [cli] {says}\n"))

    def test_a_command_line_that_is_not_understood_names_the_word_and_the_nearest(self):
        self.assert_usage("trian", DIGITS, says="trireme has no command 'trian'; "
                          "try: trireme train")
        self.assert_usage("ckpt", "inspct", "x", says="trireme ckpt has no command 'inspct'; "
                          "try: trireme ckpt inspect")
        self.assert_usage("train", DIGITS, "--wrkers", "2",
                          says="trireme train has no option --wrkers; try: --workers")
        self.assert_usage("train", DIGITS, "--steps", "5",
                          says="trireme train has no option --steps, but trireme bench step, "
                          "trireme bench collectives, trireme bench requests and trireme bench ps "
                          "have it; try: --set train.steps=5")
        self.assert_usage("train", DIGITS, "--report", "--quiet",
                          says="--report has no value: --quiet follows; try: --report VALUE")
        self.assert_usage("train", DIGITS, "--workers", "two",
                          says="--workers is 'two', which is not a whole number; "
                          "try: --workers NUMBER, such as 2")
        self.assert_usage("train", DIGITS, "extra.yaml",
                          says="trireme train does not expect 'extra.yaml': its argument config "
                          f"is '{DIGITS}'; try: leave out 'extra.yaml', or trireme help train")

    def test_help_names_a_command(self):
        for words in (("train",), ("ckpt", "inspect"), ("ckpt",), ()):
            with self.subTest(words):
                code, out, err = self.run_to_end(TRIREME, "help", *words)
                self.assertEqual((code, err), (0, ""))
                self.assertIn(" ".join(("Usage: trireme", *words, "[OPTIONS]")), out)
                self.assertRegex(out.rstrip().splitlines()[-1], "trireme ")
                self.assertEqual(self.run_to_end(TRIREME, *words, "--help"), (0, out, ""))
        self.assert_usage("help", "ckpt", "inspct", says="trireme ckpt has no command 'inspct'; "
                          "try: trireme ckpt inspect")

    def test_workers_that_are_0_or_no_number(self):
        self.refused(DIGITS, "--workers", "0", parts=["--workers 0"])
        self.assert_refused([TRIREME, "train", DIGITS, "--workers", "two"], 2, "two")
        self.assert_refused([TRIREME, "launch", "--workers", "0", "--", "true"], 2, "--workers 0")
        self.assert_refused([TRIREME], 2, "try:")

    def test_contradictory_choices_name_a_right_one(self):
        self.refused(DIGITS, "--workers", "3", "--set", "strategy.name=one_device",
                     parts=["one_device", "multi_worker"])
        self.refused(DIGITS, "--workers", "2", "--set", "strategy.name=mirrored",
                     parts=["mirrored", "multi_worker"])
        self.refused(DIGITS, "--set", "strategy.replicas=2", "--set", "strategy.name=one_device",
                     parts=["one_device", "mirrored"])

    def test_a_backend_that_cannot_continue_an_elastic_job(self):
        for backend in ("gloo", "mpi", "threads"):
            self.refused(DIGITS, "--elastic", "1:2", "--set", f"comm.backend={backend}", "--set",
                         f"run.dir={self.folder / 'run'}",
                         parts=["[cli]", backend, "comm.backend=auto, shm or tcp"])
        self.assertFalse((self.folder / "run").exists())

    def test_a_wrong_fault_or_expectation_names_its_option(self):
        self.refused(DIGITS, "--inject", "kil:rank=0@step=3", parts=["--inject: ", "'kil'"])
        self.refused(DIGITS, "--inject", "drop:link=0-1@step=3", parts=["--inject: ", "tcp"])
        self.refused(DIGITS, "--expect", "same-los", parts=["--expect: ", "same-los"])
        self.refused(DIGITS, "--set", "inject.faults=kil:rank=0@step=3", parts=["--set: "])

    def test_a_global_batch_smaller_than_the_replicas(self):
        self.refused(DIGITS, "--workers", "3", "--set", "data.batch=2", parts=["2", "3"])

    def test_missing_and_truncated_data(self):
        self.refused(DIGITS, "--set", "data.path=/nowhere/digits.csv.gz",
                     parts=["/nowhere/digits.csv.gz"], code=2)
        whole = (ROOT / "data/digits.csv.gz").read_bytes()
        broken = self.folder / "digits.csv.gz"
        broken.write_bytes(whole[: len(whole) // 2])
        self.refused(DIGITS, "--set", f"data.path={broken}", "--workers", "2", parts=[str(broken)],
                     code=1)
        images, labels = self.folder / "images", self.folder / "labels"
        idx(images, 0x803, (10, 8, 8), bytes(600))
        idx(labels, 0x801, (10,), bytes(10))
        self.refused(DIGITS, "--set", "data.name=idx", "--set", f"data.images={images}", "--set",
                     f"data.labels={labels}", parts=[str(images)], code=1)

    def test_a_label_out_of_range_names_sample_and_label(self):
        images, labels = self.folder / "images", self.folder / "labels"
        idx(images, 0x803, (10, 8, 8), bytes(640))
        idx(labels, 0x801, (10,), bytes([0, 1, 2, 3, 4, 5, 6, 77, 8, 9]))
        words = ("--set", "data.name=idx", "--set", f"data.images={images}", "--set",
                 f"data.labels={labels}", "--set", "data.classes=10")
        self.refused(DIGITS, *words, parts=["77", "7", "labels"])

    def test_a_nan_loss_names_step_and_rank_and_ends_with_1(self):
        for words in ((), ("--workers", "2"), ("--set", "strategy.replicas=2")):
            with self.subTest(words):
                code, out, err = self.run_to_end(TRIREME, "train", DIGITS, "--set",
                                                 "optimizer.lr=1e30", "--quiet", *words)
                self.assertEqual(code, 1, err)
                self.assertRegex(err, r"loss of step \d+ is NaN or infinite on rank \d")

    def test_parameters_that_overflow_are_never_saved(self):
        words = [TRIREME, "train", DIGITS, "--set", f"checkpoint.dir={self.folder / 'ckpt'}",
                 "--quiet", "--set", "schedule.warmup_steps=0"]
        self.assert_refused([*words, "--set", "optimizer.lr=1e38", "--set",
                             "optimizer.weight_decay=1e6", "--set", "train.steps=1"], 1,
                            "NaN or infinite", "step 1")
        self.assertEqual(list((self.folder / "ckpt").glob("step-*")), [])

    def test_a_checkpoint_of_another_type_is_refused(self):
        words = [TRIREME, "train", DIGITS, "--set", f"checkpoint.dir={self.folder / 'ckpt'}",
                 "--quiet", "--set", "train.steps=2"]
        self.assertEqual(self.run_to_end(*words)[0], 0)
        self.assert_refused([*words, "--set", "train.dtype=float64"], 2, "float32", "float64",
                            "--fresh")

    def test_a_wrong_model_batch_or_report_is_refused_before_a_process_starts(self):
        self.refused(DIGITS, "--set", "model.name=gpt", "--workers", "2", parts=["gpt"])
        self.refused(DIGITS, "--set", "data.batch=5000", "--set", "data.drop_last=true",
                     "--workers", "2", parts=["5000"])
        self.refused(DIGITS, "--report", self.folder, parts=["folder"])

    def test_a_report_in_a_folder_that_is_missing_is_refused_before_anything_starts(self):
        (self.folder / "reports").mkdir()
        words = [DIGITS, "--set", f"run.dir={self.folder / 'run'}", "--workers", "2"]
        self.refused(*words, "--report", "results/deep/r.json",
                     parts=["[cli] --report results/deep/r.json: there is no folder results/deep; "
                            "try: mkdir -p results/deep, if that folder is meant"])
        self.refused(*words, "--report", "reprots/r.json",
                     parts=["; try: --report reports/r.json, or mkdir -p reprots, if that"])
        self.assertEqual([path.name for path in self.folder.iterdir()], ["reports"])

    def test_a_report_may_lie_in_a_folder_that_the_run_makes(self):
        runs = self.folder / "made" / "run"
        code, _, err = self.run_to_end(TRIREME, "train", DIGITS, "--quiet", "--set",
                                       "train.steps=2", "--set", f"run.dir={runs}", "--report",
                                       runs / "copy.json")
        self.assertEqual(code, 0, err)
        self.assertEqual((runs / "copy.json").read_text(), (runs / "report.json").read_text())

    def test_two_ranks_with_different_configurations_are_both_named(self):
        script = ('exec "$0" train "$1" --quiet --set train.steps=3 '
                  '--set optimizer.lr=0.0$((TRIREME_WORKER + 1))')
        code, out, err = self.run_to_end(TRIREME, "launch", "--workers", "2", "--", "sh", "-c",
                                         script, TRIREME, DIGITS)
        self.assertEqual(code, 2, err)
        for part in ("worker 0", "worker 1", "optimizer.lr", "0.01", "0.02"):
            self.assertIn(part, err)

    def test_a_wrong_token_is_refused(self):
        words = (TRIREME, "train", DIGITS, "--quiet", "--set", "train.steps=3", "--workers", "2",
                 "--nodes", "2", "--set", "comm.timeout=8s")
        port = free_port()
        first = self.start(*words, "--node", "0", "--rendezvous", f"127.0.0.1:{port}",
                           env=environment(TRIREME_JOB_TOKEN="one-token-of-this-job"))
        code, out, err = self.run_to_end(*words, "--node", "1", "--rendezvous",
                                         f"127.0.0.1:{port}", env=environment(
                                             TRIREME_JOB_TOKEN="another-token-than-the-job's"))
        self.assertEqual(code, 2, err)
        self.assertIn("token", err)
        out, err = first.communicate(timeout=30)
        self.assertNotEqual(first.returncode, 0)

    def test_a_short_token_is_refused(self):
        words = [TRIREME, "train", DIGITS, "--workers", "2"]
        self.assert_refused(words, 2, "TRIREME_JOB_TOKEN has 6 bytes", "16 or more",
                            "openssl rand -hex 32",
                            env=environment(TRIREME_JOB_TOKEN="secret"))
        path = self.folder / "token"
        path.write_text("fifteen bytes..\n")
        path.chmod(0o600)
        self.assert_refused(words, 2, str(path), "has 15 bytes",
                            env=environment(TRIREME_JOB_TOKEN_FILE=str(path)))

    def test_two_launchers_make_one_job(self):
        words = (TRIREME, "train", DIGITS, "--quiet", "--set", "train.steps=10", "--workers", "2",
                 "--nodes", "2")
        port = free_port()
        env = environment(TRIREME_JOB_TOKEN="one-token-of-this-job")
        first = self.start(*words, "--node", "0", "--rendezvous", f"127.0.0.1:{port}", "--report",
                           self.folder / "report.json", env=env)
        code, out, err = self.run_to_end(*words, "--node", "1", "--rendezvous",
                                         f"127.0.0.1:{port}", env=env)
        self.assertEqual(code, 0, err)
        out, err = first.communicate(timeout=30)
        self.assertEqual(first.returncode, 0, err)
        self.assertIn('"world_size": 2', (self.folder / "report.json").read_text())

    def test_a_port_that_is_taken_is_named(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            self.assert_refused([TRIREME, "launch", "--workers", "2", "--rendezvous",
                                 f"127.0.0.1:{port}", "--", "true"], 1, str(port), "in use")

    def test_a_strangers_bytes_are_ignored_and_logged(self):
        port = free_port()
        process = self.start(TRIREME, "train", DIGITS, "--quiet", "--set", "train.steps=600",
                             "--workers", "2", "--rendezvous", f"127.0.0.1:{port}")

        def connect():
            try:
                return socket.create_connection(("127.0.0.1", port), timeout=1)
            except OSError:
                return None

        for content in (b"GET / HTTP/1.1\r\n\r\n", bytes(5000), os.urandom(300)):
            stranger = wait_until(connect, 20, "the rendezvous listens")
            try:
                stranger.sendall(content)
                stranger.settimeout(6)
                while stranger.recv(4096):
                    pass
            except OSError:
                pass
            stranger.close()
        out, err = process.communicate(timeout=90)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("127.0.0.1", err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
