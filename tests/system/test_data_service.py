"""data.service: a process of a host, or `trireme data serve`, makes the samples of runs. The
training stays the same, whether servers are there, are killed, or stand still."""

import contextlib
import hashlib
import json
import os
import random
import signal
import unittest

import two_hosts
from made_files import write_documents, write_picture_job, write_pictures
from support import (BIN, TRIREME, SystemTest, environment, free_port, processes_that_mention,
                     state_and_parent, wait_until)

SECRET = "0123456789abcdef0123456789abcdef"
OWN_STAGE = BIN.parent / "lib" / "own_stage.so"


def files_in_memory():
    """The files with the name of Trireme. Tests that run beside this one have folders there."""
    with os.scandir("/dev/shm") as entries:
        return {entry.name for entry in entries
                if "trireme" in entry.name.lower() and not entry.is_dir(follow_symlinks=False)}


class DataService(SystemTest):
    def setUp(self):
        super().setUp()
        images = self.folder / "images"
        # Another test run with the same images would share the server of the host.
        write_pictures(images, random.Random(str(self.folder)))
        self.config = self.folder / "images.yaml"
        write_picture_job(self.config, images, "decode | random_resized_crop(16, scale=0.5:1) | "
                          "flip | normalise(0.5, 0.25) | mixup(0.2)", epochs=6,
                          more="  service_timeout: 20s")
        self.env = environment(TRIREME_DATA_TOKEN=SECRET)
        self.files_in_memory = files_in_memory()

    def fit(self, *words, **options):
        options.setdefault("env", self.env)
        return self.train(*words, config=self.config, **options)

    def host_servers(self):
        """The servers of this test's data."""
        return [pid for pid, command in processes_that_mention(str(self.folder))
                if " data-host " in command]

    def assert_nothing_is_left(self):
        wait_until(lambda: not self.host_servers(), 30, "the server of the host ends")
        self.assertLessEqual(files_in_memory(), self.files_in_memory)

    def assert_same_training(self, other, one, tolerance=0):
        self.assert_close(other["loss_history"], one["loss_history"], tolerance)
        if tolerance == 0:
            self.assertEqual(other["eval"]["loss"], one["eval"]["loss"])

    def serve(self, *words, host="127.0.0.1", before=()):
        """Starts a server; returns the process and its address."""
        server = self.start(*before, TRIREME, "data", "serve", self.config, "--listen",
                            f"{host}:0", "--json", *words, env=self.env)
        first = json.loads(server.stdout.readline())
        self.assertEqual(first["event"], "serving")
        return server, first["address"]

    def counts_of(self, server):
        """Ends a server; returns what it counted."""
        server.send_signal(signal.SIGTERM)
        out, err = server.communicate(timeout=30)
        self.assertEqual(server.returncode, 0, err)
        return json.loads(out.splitlines()[-1])["use"]

    def test_a_server_of_the_host_changes_nothing(self):
        one = self.fit(name="one")
        self.assertNotIn("served", one["input"])
        for words in ([], ["--workers", "2"]):
            with self.subTest(words=words):
                other = self.fit("--set", "data.service=host", *words,
                                 name=f"host{len(words)}")
                self.assert_same_training(other, one, 1e-9 if words else 0)
                self.assertEqual(other["input"]["made_here"], 0)
                self.assertGreaterEqual(other["input"]["served"], 6 * 54)
                self.assertIn("samples from the data service", other["input"]["line"])
        self.assert_nothing_is_left()

    def stopped(self):
        """The processes of this test that a signal has stopped."""
        found = []
        for pid, _ in processes_that_mention(str(self.folder)):
            with contextlib.suppress(OSError):  # It has just ended.
                if state_and_parent(pid)[0] == "T":
                    found.append(pid)
        return found

    def disturbed(self, disturb, *words, service="host", before=()):
        """Runs with a service, and calls `disturb` in the middle of the run, which stands still
        meanwhile; with the server of the host, if that is the service."""
        run = self.folder / "disturbed"
        report = self.folder / "disturbed.json"
        job = self.start(*before, TRIREME, "train", self.config, "--set",
                         f"data.service={service}", "--set", f"run.dir={run}", "--report", report,
                         "--quiet", "--inject", "stop:rank=0@step=9,for=60s", *words,
                         env=self.env)
        try:
            wait_until(self.stopped, 60, "the stop")
        except AssertionError as late:
            job.kill()
            self.fail(f"{late}: {job.communicate(timeout=30)}")
        stopped, servers = self.stopped(), self.host_servers()
        self.assertEqual((len(stopped), len(servers)), (1, int(service == "host")))
        disturb(*servers)
        os.kill(stopped[0], signal.SIGCONT)
        out, err = job.communicate(timeout=90)
        self.assertEqual(job.returncode, 0, f"{out}\n{err}")
        return json.loads(report.read_text()), err, servers

    def test_a_killed_server_of_the_host_is_replaced(self):
        one = self.fit(name="one")
        for words in ([], ["--workers", "2"]):
            with self.subTest(words=words):
                other, err, _ = self.disturbed(lambda pid: os.kill(pid, signal.SIGKILL), *words)
                self.assert_same_training(other, one, 1e-9 if words else 0)
                self.assertGreater(other["input"]["served"], 0)
                self.assertIn("this process makes the samples until it is there again", err)
                self.assert_nothing_is_left()
                self.rename_run(f"killed{len(words)}")

    def rename_run(self, name):
        (self.folder / "disturbed").rename(self.folder / name)

    def test_a_stopped_server_of_the_host_holds_up_one_batch_at_a_time(self):
        one = self.fit(name="one")
        other, err, [server] = self.disturbed(lambda pid: os.kill(pid, signal.SIGSTOP), "--set",
                                            "data.service_timeout=1s")
        self.assert_same_training(other, one)
        self.assertGreater(other["input"]["made_here"], 0)
        # It was too slow, or not heard of for that time.
        self.assertIn("this process makes the samples until it is there again", err)
        os.kill(server, signal.SIGCONT)
        self.assert_nothing_is_left()

    def test_the_server_of_the_host_outlives_one_job_and_not_the_last(self):
        first = self.start(TRIREME, "train", self.config, "--set", "data.service=host", "--set",
                           f"run.dir={self.folder / 'first'}", "--quiet", "--workers", "2",
                           "--inject", "stop:rank=0@step=3,for=2s", env=self.env)
        wait_until(self.host_servers, 60, "a server")
        second = self.start(TRIREME, "train", self.config, "--set", "data.service=host", "--set",
                            f"run.dir={self.folder / 'second'}", "--quiet", "--set",
                            "train.epochs=100000", env=self.env)
        log = self.folder / "second" / "log.jsonl"
        wait_until(lambda: log.exists() and '"step"' in log.read_text(), 60, "a step")
        servers = self.host_servers()
        self.assertEqual(len(servers), 1)
        self.assertEqual(first.wait(timeout=60), 0)
        self.assertEqual(self.host_servers(), servers)
        os.killpg(second.pid, signal.SIGKILL)  # As a kill -9 of a client.
        second.wait()
        self.assert_nothing_is_left()

    def test_two_jobs_share_the_samples_of_a_server(self):
        server, address = self.serve()
        one = self.fit(name="one")
        jobs = [self.start(TRIREME, "train", self.config, "--set", f"data.service={address}",
                           "--set", f"run.dir={self.folder / name}", "--report",
                           self.folder / f"{name}.json", "--quiet", "--set",
                           f"optimizer.lr={rate}", *words, env=self.env)
                for name, rate, words in (("a", 0.02, []), ("b", 0.01, ["--workers", "2"]))]
        for job in jobs:
            _, err = job.communicate(timeout=90)
            self.assertEqual(job.returncode, 0, err)
        reports = [json.loads((self.folder / f"{name}.json").read_text()) for name in "ab"]
        self.assert_same_training(reports[0], one)
        for report in reports:
            self.assertEqual(report["input"]["made_here"], 0)
        use = self.counts_of(server)
        self.assertEqual(use["failed"], 0)
        self.assertGreater(use["served"], 2 * 6 * 54)
        # Each training sample of an epoch once, and the test samples once.
        self.assertLessEqual(use["made"], 0.55 * use["asked"])

    def test_servers_stand_in_for_each_other(self):
        one = self.fit(name="one")
        servers = [self.serve() for _ in range(2)]
        addresses = ",".join(address for _, address in servers)
        other = self.fit("--set", f"data.service={addresses}", "--workers", "2", name="both")
        self.assert_same_training(other, one, 1e-9)
        gone = servers[0][0]
        gone.kill()
        gone.wait()
        other = self.fit("--set", f"data.service={addresses}", "--set",
                         "data.service_timeout=2s", name="one_left")
        self.assert_same_training(other, one)
        self.assertEqual(other["input"]["made_here"], 0)
        self.assertGreater(self.counts_of(servers[1][0])["served"], 6 * 54)

    @unittest.skipUnless(two_hosts.can_be_made(), "network namespaces cannot be made here")
    def test_a_server_of_another_host_changes_nothing_and_may_be_lost(self):
        one = self.fit(name="one")
        hosts = two_hosts.TwoHosts()
        self.addCleanup(hosts.end)
        server, address = self.serve(host=hosts.addresses[0], before=hosts.on(0))
        report = self.folder / "other.json"
        self.must(*hosts.on(1), TRIREME, "train", self.config, "--workers", "2", "--set",
                  f"data.service={address}", "--set", f"run.dir={self.folder / 'other'}",
                  "--report", report, "--quiet", env=self.env)
        other = json.loads(report.read_text())
        self.assert_same_training(other, one, 1e-9)
        self.assertEqual(other["input"]["made_here"], 0)
        self.assertGreaterEqual(other["input"]["served"], 6 * 54)
        # No packet passes any more, and nobody tells the run.
        other, err, _ = self.disturbed(hosts.cut, "--set", "data.service_timeout=1s",
                                       service=address, before=hosts.on(1))
        self.assert_same_training(other, one)
        self.assertGreater(other["input"]["served"], 0)
        self.assertGreater(other["input"]["made_here"], 0)
        self.assertIn("this process makes the samples until", err)
        self.assertGreaterEqual(self.counts_of(server)["served"], 6 * 54)

    def refused(self, *settings, parts, env=None):
        words = [word for setting in settings for word in ("--set", setting)]
        run = self.folder / "refused"
        self.assert_refused([TRIREME, "train", self.config, "--set", f"run.dir={run}", *words],
                            2, *parts, env=env or self.env)
        self.assertFalse((run / "log.jsonl").exists())

    def test_wrong_services_are_refused_before_the_first_step(self):
        server, address = self.serve()
        service = f"data.service={address}"
        self.refused("data.service=hots", parts=["data.service is \"hots\"", "none, host, or"])
        self.refused(service, env=environment(TRIREME_DATA_TOKEN="another secret, long enough"),
                     parts=["another secret", "TRIREME_DATA_TOKEN"])
        self.refused(service, env=environment(), parts=["no secret for the data service"])
        self.refused(service, "data.stages=decode | resize(16:16)",
                     parts=["the server makes other samples of the train part",
                            "the stages: \"decode | resize(16:16)\" here", "flip"])
        self.refused(service, "data.split_seed=5", parts=["the held-out part"])
        nobody = f"127.0.0.1:{free_port()}"
        run = self.folder / "nobody"
        self.assert_refused([TRIREME, "train", self.config, "--set", f"run.dir={run}", "--set",
                             f"data.service={nobody}", "--set", "data.service_timeout=1s"],
                            138, f"the data service at {nobody} cannot be reached",
                            "trireme data serve", env=self.env)
        # A function of a programme, and the server's own errors.
        self.assert_refused([TRIREME, "data", "serve", self.config, "--listen", address], 1,
                            address, env=self.env)
        self.assert_refused([TRIREME, "data", "serve", self.config], 2,
                            "no secret for the data service", env=environment())
        self.assert_refused([TRIREME, "data", "serve", self.config, "--set",
                             "data.stages=decode | resize(16:16) | normalise | map(brighter)"], 2,
                            "brighter", "model.library", env=self.env)
        self.counts_of(server)

    def test_another_version_of_the_users_functions_is_refused(self):
        versions = [OWN_STAGE.read_bytes(), OWN_STAGE.read_bytes() + b"another build"]
        libraries = [self.folder / "one.so", self.folder / "other.so"]
        for library, version in zip(libraries, versions):
            library.write_bytes(version)
        stages = "data.stages=decode | resize(16:16) | normalise(0.5, 0.25) | map(darker)"
        words = ["--set", stages, "--set", f"model.library={libraries[0]}"]
        one = self.fit(*words, name="one")
        server, address = self.serve(*words)
        for name, service in (("served", address), ("host", "host")):
            other = self.fit(*words, "--set", f"data.service={service}", name=name)
            self.assert_same_training(other, one)
            self.assertEqual(other["input"]["made_here"], 0)
        here, there = [hashlib.sha256(version).hexdigest()[:16] for version in versions[::-1]]
        self.refused(f"data.service={address}", stages, f"model.library={libraries[1]}",
                     parts=[f'model.library: "sha256 {here}" here, "sha256 {there}" at the server'])
        self.counts_of(server)
        self.assert_nothing_is_left()

    def test_the_samples_of_a_mixture_have_the_same_bits(self):
        images = self.folder / "images"
        self.config.write_text(f"""
model: {{name: mlp, hidden: [16]}}
data:
  name: mixture
  sources:
    - {{name: image_folder, path: {images}, weight: 2}}
    - {{name: image_folder, path: {images}}}
  batch: 16
  test_fraction: 0.25
  stages: decode | random_resized_crop(16, scale=0.5:1) | flip | normalise(0.5, 0.25) | mixup(0.2)
  service_timeout: 20s
optimizer: {{name: sgd, lr: 0.02}}
train: {{epochs: 3, dtype: float64}}
""")
        one = self.fit(name="one")
        server, address = self.serve()
        for name, service in (("served", address), ("host", "host")):
            other = self.fit("--set", f"data.service={service}", name=name)
            self.assert_same_training(other, one)
            self.assertEqual(other["input"]["made_here"], 0)
            self.assertGreater(other["input"]["served"], 100)
        self.counts_of(server)
        self.assert_nothing_is_left()

    def test_the_slowest_stage_of_a_service_is_named(self):
        stages = "data.stages=decode | resize(16:16) | normalise(0.5, 0.25) | map(slow)"
        words = ["--set", stages, "--set", f"model.library={OWN_STAGE}", "--set",
                 "data.service_threads=2"]
        server, address = self.serve(*words)
        for name, service, workers in (("served", address, 1), ("host", "host", 2)):
            with self.subTest(name):
                found = self.fit(*words, "--set", f"data.service={service}", "--workers",
                                 str(workers), name=name)["input"]
                self.assertEqual(found["slowest_stage"], "map(slow)", found)
                self.assertIs(found["slowest_in_service"], True)
                self.assertEqual(found["service_threads"], 2)
                slow, = (stage for stage in found["stages"]
                         if stage["name"] == "map(slow)" and stage.get("in") == "service")
                self.assertGreaterEqual(slow["ms_per_sample"], 4)
                self.assertGreater(slow["threads"], 0.1)
                # The workers' parts add up to what the service has done.
                self.assertLess(slow["samples"], 2 * found["served"])
                self.assertIn("slowest stage map(slow) of the data service", found["line"])
        use = self.counts_of(server)
        self.assertEqual(use["threads"], 2)
        slow, = (stage for stage in use["stages"]["train"] if stage["name"] == "map(slow)")
        self.assertGreaterEqual(slow["ms_per_sample"], 4)
        self.assertGreater(slow["seconds"], 0)
        self.assertIn("test", use["stages"])
        self.assert_nothing_is_left()

    def test_packs_and_padded_batches_have_the_same_bits(self):
        documents = self.folder / "documents.jsonl"
        write_documents(documents, random.Random(str(self.folder)), 120)
        self.config = self.folder / "documents.yaml"
        self.config.write_text(f"""
model: {{name: gpt, layers: 1, width: 16, heads: 2}}
data:
  name: jsonl
  path: {documents}
  batch: 6
  service_timeout: 20s
optimizer: {{name: adam, lr: 0.01}}
train: {{epochs: 2, dtype: float64}}
""")
        for name, stages in (("packs", "pack(24, window=32)"),
                             ("padded", "bucket(window=4) | pad(multiple=4)")):
            words = ["--set", f"data.stages={stages}", "--set", "reproducible.virtual_shards=2"]
            for workers in ("1", "2"):
                with self.subTest(stages=stages, workers=workers):
                    one = self.fit(*words, "--workers", workers, name=name + workers)
                    other = self.fit(*words, "--workers", workers, "--set", "data.service=host",
                                     name=name + workers + "served")
                    self.assert_same_training(other, one)
                    self.assertEqual(other["input"]["made_here"], 0)
                    self.assertGreater(other["input"]["served"], 0)
        self.assert_nothing_is_left()

    def test_the_plan_names_the_service(self):
        code, out, err = self.run_to_end(TRIREME, "plan", self.config, "--set",
                                         "data.service=host")
        self.assertEqual(code, 0, err)
        self.assertIn("data service: one process for all jobs of this user on each host", out)


if __name__ == "__main__":
    unittest.main()
