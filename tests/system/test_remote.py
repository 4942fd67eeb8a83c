"""Data on a server: fetched once a host, kept within a bound, continued after cuts, and refused
with the cause where it cannot be."""

import io
import json
import random
import signal
import subprocess
import tarfile
import time
import unittest

import numpy as np

import small_disk
from file_server import RemoteTest
from support import TRIREME, environment, png


def tar_of(first, count, filler=0):
    """A shard of records that have the numbers from `first` on."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(first, first + count):
            for end, content in (("txt", f"record {number}".encode() + b"." * filler),
                                 ("cls", str(number % 2).encode())):
                member = tarfile.TarInfo(f"{number:06}.{end}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


def bytes_of(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


class Remote(RemoteTest):
    def texts(self, address, *words, **more):
        out = self.data("head", address, "--json", "--count", "1000", *words, **more)
        return [record["fields"]["txt"]["text"] for record in json.loads(out)]

    def shards(self, count=3, records=4, filler=0):
        return {f"train-{i:04}.tar": tar_of(i * records, records, filler) for i in range(count)}

    def test_shards_are_fetched_once_and_then_read_without_the_server(self):
        server = self.serve(self.shards())
        address = server.url + "/train-{0000..0002}.tar"
        self.assertEqual(self.texts(address), [f"record {i}" for i in range(12)])
        self.assertEqual(server.bytes_sent, sum(map(len, server.files.values())))
        self.assertEqual(len(list(self.downloads.glob("*.shard"))), 3)
        self.assertEqual(list(self.downloads.glob("*.part*")), [])
        local = self.folder / "copy"
        local.mkdir()
        for name, content in server.files.items():
            (local / name).write_bytes(content)
        content = [json.loads(self.data("index", path, "--json"))["content"]
                   for path in (address, local / "train-{0000..0002}.tar")]
        self.assertEqual(content[0], content[1])
        # `index` has asked whether the files are still the same, and no byte came.
        self.assertTrue(all("If-None-Match" in headers for _, headers in server.requests[-3:]))
        self.assertEqual(server.bytes_sent, sum(map(len, server.files.values())))
        server.close()
        self.assertEqual(len(self.texts(address)), 12)

    def test_every_format_of_shards(self):
        tokens = np.arange(41, dtype=np.uint16)
        files = {"a.csv": b"x,y\n1,2\n3,4\n", "a.jsonl": b'{"x": 1}\n{"x": 2}\n',
                 "a.txt": b"one\ntwo\n", "x.npy": bytes_of(np.arange(6).reshape(2, 3)),
                 "y.npy": bytes_of(np.array([5, 6])), "t.bin": tokens.tobytes()}
        server = self.serve(files)
        for name, words in {"a.csv": (), "a.jsonl": (), "a.txt": (), "{x,y}.npy": (),
                            "t.bin": ("--format", "tokens", "--block", "20", "--dtype",
                                      "uint16")}.items():
            with self.subTest(name=name):
                out = json.loads(self.data("head", f"{server.url}/{name}", "--json", *words))
                self.assertEqual(len(out), 2)

    def test_faults_of_the_server_are_passed(self):
        for options in ({}, {"versions": "date"}, {"ranges": False}, {"versions": "none"}):
            for fault in ("cut",) if options else ("503", "cut", "stall"):
                with self.subTest(fault=fault, options=options):
                    server = self.serve(self.shards(1, 40, 5000), **options)
                    server.faults["train-0000.tar"] = [fault]
                    texts = self.texts(server.url + "/train-0000.tar")
                    self.assertEqual(len(texts), 40)
                    requests = server.requests_of("train-0000.tar")
                    self.assertEqual(len(requests), 2)
                    is_continued = fault != "503" and options.get("versions") != "none"
                    self.assertEqual("Range" in requests[1][1], is_continued)

    def test_a_file_that_changes_between_two_parts_is_fetched_as_a_whole(self):
        server = self.serve(self.shards(1, 40, 5000))
        server.faults["train-0000.tar"] = ["cut"]
        original = server.files["train-0000.tar"]

        class Changing(dict):
            def __getitem__(inner, name):
                content = dict.__getitem__(inner, name)
                dict.__setitem__(inner, name, tar_of(100, 40, 5000))
                return content

        server.files = Changing({"train-0000.tar": original})
        self.assertTrue(self.texts(server.url + "/train-0000.tar")[0].startswith("record 100"))

    def test_a_server_that_continues_another_version_is_asked_for_all_of_it(self):
        name, new = "train-0000.tar", tar_of(100, 40, 5000)
        for versions in ("etag", "date"):
            with self.subTest(versions=versions):
                server = self.serve(self.shards(1, 40, 5000), versions=versions)
                server.faults[name] = ["cut", "blind"]
                old = server.files[name]

                class Changing(dict):
                    def __getitem__(inner, name):
                        return old if len(server.requests) == 1 else new

                server.files = Changing(server.files)
                texts = self.texts(server.url + f"/{name}")
                self.assertEqual([text[:10] for text in texts],
                                 [f"record {i}" for i in range(100, 140)])
                self.assertEqual(["Range" in headers for _, headers in server.requests],
                                 [False, True, False])

    def test_a_whole_part_of_another_version_is_not_taken_for_the_indexed_file(self):
        server = self.serve(self.shards(1, 40, 5000))
        address = server.url + "/train-0000.tar"
        self.data("index", address)
        whole = next(iter(self.downloads.glob("*.shard")))
        part = whole.with_suffix(".part")
        whole.rename(part)
        facts = json.loads(whole.with_suffix(".json").read_text())
        del facts["digest"]
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            facts["boot"] = file.read()
        whole.with_suffix(".part.json").write_text(json.dumps(facts))
        # A process that was killed before the last step left all of it: no byte is fetched again.
        sent = server.bytes_sent
        self.data("verify", address)
        self.assertEqual(server.bytes_sent, sent)
        whole.rename(part)
        whole.with_suffix(".part.json").write_text(json.dumps(facts))
        part.write_bytes(tar_of(100, 40, 5000))
        self.data("verify", address)
        self.assertEqual(whole.read_bytes(), server.files["train-0000.tar"])

    def test_errors_name_address_and_cause_but_no_secret(self):
        server = self.serve(self.shards(1, 40, 5000))
        name = "train-0000.tar"
        (self.folder / ".netrc").write_text("machine 127.0.0.1 login me password pass3\n")
        self.data("index", server.url + f"/{name}", HOME=str(self.folder))
        self.assertTrue(server.requests[-1][1]["Authorization"].startswith("Basic "))
        secret = server.url.replace("//", "//me:pass1@") + f"/{name}?sig=pass2"
        for faults, parts in {("404",): ("404", "correct the address"), ("403",): ("403",),
                              ("500",) * 3: ("500", "2 tries", "data.download_tries"),
                              ("stall",) * 4: ("2 tries",)}.items():
            with self.subTest(faults=faults):
                server.faults[name] = list(faults)
                if faults[0] == "stall":
                    server.ranges = False
                out = self.data("index", secret, code=2 if faults[0] == "404" else 1)
                for part in (server.url + "/" + name, *parts):
                    self.assertIn(part, out)
                self.assertNotIn("pass1", out)
                self.assertNotIn("pass2", out)
        for address, part in (("http://127.0.0.1:1/a.tar", "2 tries"),
                              ("http://no-such-host.invalid/a.tar", "host"),
                              ("http://127.0.0.1:1/*.tar", "cannot be listed"),
                              ("http://127.0.0.1:1/data/", "names no file"),
                              ("http:///a.tar", "no host"),
                              ("http://me:pass1/2@127.0.0.1:1/a.tar", "%2F for /"),
                              ("http://me:pass1@127.0.0.1:1/{a.tar", "without a }"),
                              ("ftp://127.0.0.1/a.tar", "files are read here"),
                              ("file:///etc/a.tar", "files are read here")):
            with self.subTest(address=address):
                code = 1 if part in ("2 tries", "host") else 2
                out = self.data("index", address, "--format", "webdataset", code=code)
                self.assertIn(part, out)
                self.assertNotIn("pass1", out)

    def test_a_server_that_does_not_say_the_length_is_refused(self):
        server = self.serve(self.shards(1), lengths=False)
        self.assertIn("does not say how long",
                      self.data("index", server.url + "/train-0000.tar", code=1))
        server.more = {"Transfer-Encoding": "identity"}  # It says no length either.
        server.faults["train-0000.tar"] = ["cut"]
        self.assertIn("does not say how long",
                      self.data("index", server.url + "/train-0000.tar", code=1))

    def test_a_changed_file_is_an_error_until_it_is_indexed_anew(self):
        server = self.serve(self.shards())
        address = server.url + "/train-{0000..0002}.tar"
        self.data("index", address)
        for changed in (tar_of(50, 4), tar_of(50, 5, 1000)):
            server.files["train-0001.tar"] = changed
            for file in self.downloads.glob("*.shard"):
                file.unlink()
            out = self.data("verify", address, code=1)
            self.assertIn("train-0001.tar", out)
            self.assertIn("not the one that was indexed", out)
            self.data("index", address)
            self.assertIn("record 50", self.texts(address)[4])

    def test_a_process_that_dies_leaves_a_part_that_the_next_one_continues(self):
        server = self.serve(self.shards(1, 200, 5000))
        size = len(server.files["train-0000.tar"])
        server.faults["train-0000.tar"] = ["slow"]
        process = self.start(TRIREME, "data", "index", server.url + "/train-0000.tar",
                             "--index-dir", self.folder / "index", "--download-dir",
                             self.downloads, env=environment(no_proxy="127.0.0.1"))
        deadline = time.monotonic() + 20
        part = None
        while time.monotonic() < deadline:
            part = next(iter(self.downloads.glob("*.part")), None)
            if part and part.stat().st_size > 100_000:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        there = part.stat().st_size
        self.assertGreater(there, 100_000)
        self.assertLess(there, size)
        self.assertEqual(list(self.downloads.glob("*.shard")), [])
        self.assertEqual(len(self.texts(server.url + "/train-0000.tar")), 200)
        first = int(server.requests[-1][1]["Range"].removeprefix("bytes=").removesuffix("-"))
        self.assertGreaterEqual(first, there)

    def test_several_processes_fetch_each_file_once(self):
        server = self.serve(self.shards(3, 40, 5000))
        for name in server.files:
            server.faults[name] = ["slow"]
        words = [TRIREME, "data", "verify", server.url + "/train-{0000..0002}.tar",
                 "--index-dir", self.folder / "index", "--download-dir", self.downloads]
        processes = [self.start(*words, env=environment(no_proxy="127.0.0.1")) for _ in range(3)]
        for process in processes:
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, out + err)
        self.assertEqual(server.bytes_sent, sum(map(len, server.files.values())))

    def test_the_folder_keeps_its_bound(self):
        server = self.serve(self.shards(6, 40, 5000))
        size = len(server.files["train-0000.tar"])
        address = server.url + "/train-{0000..0005}.tar"
        bound = ("--download-bytes", str(int(2.5 * size)))
        self.assertEqual(len(self.texts(address, *bound)), 240)
        kept = list(self.downloads.glob("*.shard"))
        self.assertLessEqual(sum(file.stat().st_size for file in kept), 2.5 * size)
        self.assertGreaterEqual(len(kept), 1)
        self.assertEqual(len(self.texts(address, *bound)), 240)
        out = self.data("index", address, "--download-bytes", str(size // 2), code=2)
        self.assertIn("data.download_bytes", out)

    @unittest.skipUnless(small_disk.can_be_made(), "mount namespaces cannot be made here")
    def test_a_full_disk_is_an_error_that_names_the_file(self):
        server = self.serve(self.shards(1, 60, 5000))
        self.downloads.mkdir()
        out = self.data("index", server.url + "/train-0000.tar", "--download-bytes", "1GB", code=1,
                        before=small_disk.words(self.downloads, "128k"))
        self.assertIn("train-0000.tar", out)
        self.assertIn("No space left on device", out)
        self.assertRegex(out, r"try: more disk space, or a data\.download_dir")

    def training(self, address, *words):
        config = self.folder / "job.yaml"
        config.write_text(f"""
model: {{name: mlp, hidden: [8]}}
data:
  name: webdataset
  path: {address}
  batch: 12
  test_fraction: 0.2
  stages: decode | normalise(0.5, 0.25)
  shuffle: blocks
  window: 40
  download_dir: {self.downloads}
optimizer: {{name: sgd, lr: 0.02}}
train: {{epochs: 3, dtype: float64}}
""")
        env = environment(no_proxy="127.0.0.1", XDG_CACHE_HOME=str(self.folder / "cache"))
        return config, env

    def images(self, shards, records):
        files, noise = {}, random.Random(5)
        for shard in range(shards):
            file = io.BytesIO()
            with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                for i in range(records):
                    number = shard * records + i
                    label = number % 3
                    pixels = bytes(min(255, value // 2 + 60 * label)
                                   for value in noise.randbytes(32 * 32 * 3))
                    for end, content in (("png", png(pixels, 32, 32)),
                                         ("cls", str(label).encode())):
                        member = tarfile.TarInfo(f"{number:06}.{end}")
                        member.size = len(content)
                        tar.addfile(member, io.BytesIO(content))
            files[f"train-{shard}.tar"] = file.getvalue()
        return files

    def test_a_job_trains_from_a_server_as_from_files(self):
        files = self.images(5, 20)
        server = self.serve(files)
        size = max(map(len, files.values()))
        local = self.folder / "local"
        local.mkdir()
        for name, content in files.items():
            (local / name).write_bytes(content)
        config, env = self.training(server.url + "/train-{0..4}.tar")
        runs = {}
        for name, words in {"one": [], "two": ["--workers", "2"],
                            "small": ["--workers", "2", "--set",
                                      f"data.download_bytes={3 * size + size // 2}"]}.items():
            if name == "small":
                for file in self.downloads.iterdir():
                    file.unlink()
            before = server.bytes_sent
            runs[name] = self.train(*words, config=config, env=env, name=name)
            if name == "small":
                kept = [file.stat().st_size for file in self.downloads.glob("*.shard")]
                self.assertLessEqual(sum(kept), 3 * size + size // 2)
            else:
                expected = sum(map(len, files.values())) if name == "one" else 0
                self.assertEqual(server.bytes_sent - before, expected)
        # The same files on this machine have the same blocks, and so the same order.
        here = self.train("--set", f"data.path={local}", config=config, env=env, name="here")
        self.assertEqual(runs["one"]["loss_history"], here["loss_history"])
        for name in ("two", "small"):
            self.assert_close(runs[name]["loss_history"], runs["one"]["loss_history"], 1e-9)

    def test_files_come_ahead_of_need(self):
        files = self.images(4, 60)
        server = self.serve(files)
        config, env = self.training(server.url + "/train-{0..3}.tar")
        self.run_to_end(TRIREME, "data", "index", config, env=env)
        for file in self.downloads.iterdir():
            file.unlink()
        del server.requests[:]
        # The first batches need one file. The second one comes while they are computed.
        report = self.train("--set", "train.steps=1", "--set", "train.epochs=auto", "--set",
                            "data.shuffle=none", "--set", "data.test_fraction=0.1",
                            config=config, env=env, name="short")
        self.assertEqual(report["steps"], 1)
        self.assertIn("train-1.tar", [name for name, _ in server.requests])

    def test_each_source_of_a_mixture_reads_ahead(self):
        files = {f"{folder}/{name}": content for folder in "ab"
                 for name, content in self.images(3, 60).items()}
        for slow, other in ("ab", "ba"):
            with self.subTest(slow=slow):
                server = self.serve(files)
                config = self.folder / f"{slow}.yaml"
                sources = "".join(f"    - {{name: webdataset, path: '{path}'}}\n" for path in
                                  (server.url + f"/{folder}/train-{{0..2}}.tar" for folder in "ab"))
                config.write_text(f"""
model: {{name: mlp, hidden: [8]}}
data:
  name: mixture
  sources:
{sources}  batch: 8
  test_fraction: 0
  stages: decode
  shuffle: none
  download_dir: {self.folder / ("downloads of " + slow)}
train: {{steps: 2, dtype: float64}}
""")
                env = environment(no_proxy="127.0.0.1",
                                  XDG_CACHE_HOME=str(self.folder / ("cache of " + slow)))
                self.train("--set", "data.threads=1", config=config, env=env, name=slow)
                for file in (self.folder / ("downloads of " + slow)).iterdir():
                    file.unlink()
                del server.requests[:]
                # While the first file of one source comes slowly, the second one of the other
                # source is fetched, which no step of this run needs.
                server.faults[f"{slow}/train-0.tar"] = ["slow"]
                self.train("--set", "data.threads=1", config=config, env=env, name=slow + " again")
                names = [name for name, _ in server.requests]
                self.assertIn(f"{other}/train-1.tar", names)

    def test_https_is_verified_and_is_not_left(self):
        certificate = self.folder / "server.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj",
                        "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                        certificate, "-out", self.folder / "cert.pem"], check=True, timeout=30,
                       capture_output=True)
        certificate.write_text(certificate.read_text() + (self.folder / "cert.pem").read_text())
        secure = self.serve(self.shards(1), certificate=certificate)
        plain = self.serve(self.shards(1))
        address = secure.url + "/train-0000.tar"
        trust = {"SSL_CERT_FILE": str(self.folder / "cert.pem")}
        self.assertIn("ertificate", self.data("index", address, code=1))
        secure.faults["train-0000.tar"] = [f"to {plain.url}/train-0000.tar"]
        self.assertIn("from https to http", self.data("index", address, code=1, **trust))
        self.assertEqual(plain.requests, [])
        self.assertEqual(len(self.texts(address, **trust)), 4)
        plain.faults["train-0000.tar"] = [f"to {plain.url}/train-0000.tar"] * 9
        self.assertIn("redirect", self.data("index", plain.url + "/train-0000.tar", code=1))


if __name__ == "__main__":
    unittest.main()
