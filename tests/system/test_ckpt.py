"""`trireme ckpt`, and checkpoints that go to PyTorch and back."""

import argparse
import collections
import datetime
import enum
import functools
import hashlib
import json
import os
import pathlib
import random
import resource
import site
import subprocess
import sys
import types
import unittest
import uuid

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from support import DIGITS, ROOT, TRIREME, SystemTest


class OwnKind(enum.Enum):
    one = 1


class Ckpt(SystemTest):
    def ckpt(self, *words, code=0):
        actual, out, err = self.run_to_end(TRIREME, "ckpt", *words)
        self.assertEqual(actual, code, out + err)
        return out + err

    def trained(self, *words, name="run"):
        folder = self.folder / name / "ckpt"
        report = self.train("--set", f"checkpoint.dir={folder}", "--set", "model.name=mlp",
                            "--set", "optimizer.lr=0.05", *words, name=name)
        return pathlib.Path(report["checkpoint"])

    def test_a_state_dict_goes_to_pytorch_and_back_bit_for_bit(self):
        checkpoint = self.trained("--set", "train.steps=4")
        self.ckpt("convert", checkpoint, self.folder / "model.pt")
        ours = load_file(checkpoint / "model.safetensors")
        theirs = torch.load(self.folder / "model.pt", weights_only=True)
        self.assertEqual(set(ours), set(theirs))
        for name, tensor in ours.items():
            self.assertTrue(torch.equal(tensor, theirs[name]), name)
        self.ckpt("convert", self.folder / "model.pt", self.folder / "back.safetensors")
        self.assertIn("the same", self.ckpt("diff", checkpoint, self.folder / "back.safetensors"))

    def test_reads_files_that_pytorch_saves(self):
        model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4),
                                    torch.nn.Linear(2, 3))
        state = model.state_dict()
        files = {"state": state, "parameters": dict(model.named_parameters()),
                 "ordered": {k: v.clone() for k, v in state.items()}}
        for name, content in files.items():
            with self.subTest(name):
                torch.save(content, self.folder / "model.pt")
                self.ckpt("convert", self.folder / "model.pt", self.folder / "model.safetensors")
                read = load_file(self.folder / "model.safetensors")
                self.assertEqual(set(read), set(content))
                for key, tensor in content.items():
                    self.assertTrue(torch.equal(read[key], tensor), key)

    def test_every_type_survives_both_ways(self):
        types = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
                 torch.uint16, torch.uint32, torch.uint64,
                 torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn,
                 torch.float8_e5m2]
        state = {}
        for dtype in types:
            for name, shape in (("matrix", (3, 4)), ("scalar", ()), ("empty", (0, 2))):
                tensor = (torch.rand(shape) * 4).to(torch.int64).to(dtype)
                state[f"{dtype}.{name}".removeprefix("torch.")] = tensor
        torch.save(state, self.folder / "theirs.pt")
        self.ckpt("convert", self.folder / "theirs.pt", self.folder / "ours.safetensors")
        self.ckpt("convert", self.folder / "ours.safetensors", self.folder / "ours.pt")
        self.ckpt("convert", self.folder / "ours.pt", self.folder / "again.safetensors")
        for name, read in (("ours.safetensors", load_file),
                           ("ours.pt", lambda path: torch.load(path, weights_only=True)),
                           ("again.safetensors", load_file)):
            found = read(self.folder / name)
            self.assertEqual(set(found), set(state), name)
            for key, tensor in state.items():
                self.assertEqual((found[key].dtype, found[key].shape),
                                 (tensor.dtype, tensor.shape), f"{name} {key}")
                self.assertTrue(torch.equal(found[key].flatten().view(torch.uint8),
                                            tensor.flatten().view(torch.uint8)), f"{name} {key}")
        self.assertIn("the same", self.ckpt("diff", self.folder / "theirs.pt",
                                            self.folder / "again.safetensors"))

    def test_types_that_one_format_lacks_are_refused_by_name(self):
        for dtype, in_safetensors in ((torch.complex64, True), (torch.float8_e8m0fnu, True),
                                      (torch.complex128, False), (torch.complex32, False),
                                      (torch.float8_e4m3fnuz, False),
                                      (torch.float8_e5m2fnuz, False)):
            name = str(dtype).removeprefix("torch.")
            with self.subTest(name):
                state = {"w": torch.arange(6, dtype=torch.float32).view(2, 3).to(dtype)}
                torch.save(state, self.folder / f"{name}.pt")
                self.ckpt("convert", self.folder / f"{name}.pt", self.folder / "back.pt")
                back = torch.load(self.folder / "back.pt", weights_only=True)["w"]
                self.assertEqual(back.dtype, dtype)
                self.assertEqual(back.untyped_storage().tolist(),
                                 state["w"].untyped_storage().tolist())
                target = self.folder / f"{name}.safetensors"
                said = self.ckpt("convert", self.folder / f"{name}.pt", target,
                                 code=0 if in_safetensors else 2)
                self.assertEqual(target.exists(), in_safetensors)
                if in_safetensors:
                    self.assertEqual(load_file(target)["w"].dtype, dtype)
                else:
                    self.assertIn(f'"w" is {name}, for which .safetensors has no name', said)

    def test_tied_weights_stay_tied_and_in_order(self):
        w = torch.randn(4, 3)
        state = {"z": w, "m": torch.randn(2), "a": w, "part": w[1:], "turned": w.t()}
        torch.save(state, self.folder / "theirs.pt")
        self.ckpt("convert", self.folder / "theirs.pt", self.folder / "ours.pt")
        found = torch.load(self.folder / "ours.pt", weights_only=True)
        self.assertEqual(list(found), list(state))
        self.assertEqual(found["a"].data_ptr(), found["z"].data_ptr())
        for key, tensor in state.items():
            self.assertTrue(torch.equal(found[key], tensor), key)
        self.assertLess((self.folder / "ours.pt").stat().st_size,
                        (self.folder / "theirs.pt").stat().st_size + 400)
        # The first name that is left has the storage.
        self.ckpt("convert", self.folder / "theirs.pt", self.folder / "left.pt", "--drop", "^z$",
                  "--rename", "^a$=b")
        self.assertEqual(list(torch.load(self.folder / "left.pt", weights_only=True)),
                         ["m", "b", "part", "turned"])

    def test_an_archive_of_a_module_is_loaded_by_torch(self):
        # tests/models/module_archive_test.cc loads such archives in C++.
        checkpoint = self.trained("--set", "train.steps=2")
        archive = self.folder / "model.pt"
        self.ckpt("convert", checkpoint, archive, "--archive", "--module", "head.drop")
        module = torch.jit.load(archive)
        ours = load_file(checkpoint / "model.safetensors")
        self.assertEqual(set(module.state_dict()), set(ours))
        for name, tensor in module.state_dict().items():
            self.assertTrue(torch.equal(ours[name], tensor), name)
        self.assertTrue(all(one.requires_grad for one in module.parameters()))
        # The layers 0 and 2 of an mlp are Linear, and 1 is a ReLU.
        self.assertIn("1", dict(module.named_children()))
        self.assertIn("head.drop", dict(module.named_modules()))
        self.assertIn("the same", self.ckpt("diff", checkpoint, archive))

    def test_an_archive_has_every_type_and_shares_tied_weights(self):
        state = {f"list.0.{name}": torch.ones(3).to(getattr(torch, name))
                 for name in ("bool", "uint16", "int8", "float16", "bfloat16", "float8_e4m3fn",
                              "float8_e5m2fnuz", "complex32", "complex128")}
        state["list.2.weight"] = state["tied"] = torch.randn(2, 3)
        state["norm.running_mean"] = torch.zeros(2)
        torch.save(state, self.folder / "state.pt")
        self.ckpt("convert", self.folder / "state.pt", self.folder / "archive.pt", "--archive")
        module = torch.jit.load(self.folder / "archive.pt")
        found = module.state_dict()
        self.assertEqual(set(found), set(state))
        for name, tensor in state.items():
            self.assertEqual((found[name].dtype, found[name].shape), (tensor.dtype, tensor.shape))
            self.assertEqual(bytes(found[name].untyped_storage()),
                             bytes(tensor.untyped_storage()), name)
        self.assertEqual(found["tied"].data_ptr(), found["list.2.weight"].data_ptr())
        self.assertIn("norm.running_mean", dict(module.named_buffers()))
        self.assertIn("the same", self.ckpt("diff", self.folder / "state.pt",
                                            self.folder / "archive.pt"))

    def test_an_archive_with_a_number_for_a_tensor_beside_modules_loads(self):
        state = {"a.0": torch.ones(2), "a.2.weight": torch.zeros(3)}
        torch.save(state, self.folder / "state.pt")
        self.ckpt("convert", self.folder / "state.pt", self.folder / "archive.pt", "--archive")
        found = torch.jit.load(self.folder / "archive.pt").state_dict()
        self.assertEqual(set(found), set(state))

    def test_wrong_uses_of_archives_are_refused_before_a_file_is_written(self):
        torch.save({"a": torch.ones(1), "a.b": torch.ones(1)}, self.folder / "state.pt")
        for words, part in ((("no.safetensors", "--archive"), "--archive writes PyTorch's file"),
                            (("no.pt", "--module", "x"), "try: --archive --module x"),
                            (("no.pt", "--archive"), "is the name of a tensor and of a module")):
            with self.subTest(words=words):
                target = self.folder / words[0]
                said = self.ckpt("convert", self.folder / "state.pt", target, *words[1:], code=2)
                self.assertIn(part, said)
                self.assertFalse(target.exists())

    def test_names_are_mapped_by_rules(self):
        state = {"module.conv.weight": torch.ones(2), "module.conv.bias": torch.zeros(2),
                 "module.fc.weight": torch.ones(3), "step": torch.tensor(4)}
        torch.save(state, self.folder / "ddp.pt")
        target = self.folder / "plain.pt"
        self.ckpt("convert", self.folder / "ddp.pt", target, "--rename", r"^module\.=", "--rename",
                  r"^fc\.(.*)=head.$1", "--drop", "^step$")
        self.assertEqual(list(torch.load(target, weights_only=True)),
                         ["conv.weight", "conv.bias", "head.weight"])
        for rule, part in ((("--rename", "^modul$=x"), "renames no tensor"),
                           (("--drop", "^gone"), "drops no tensor"),
                           (("--rename", "(=x"), "is no regular expression"),
                           (("--rename", "weight"), "expected: REGEX=REPLACEMENT"),
                           (("--rename", ".*weight=w"), "one name: 'w'")):
            with self.subTest(rule=rule):
                said = self.ckpt("convert", self.folder / "ddp.pt", self.folder / "no.pt", *rule,
                                 code=2)
                self.assertIn(part, said)
                self.assertFalse((self.folder / "no.pt").exists())

    def test_a_file_with_code_is_refused_and_never_run(self):
        class Evil:
            def __init__(self, function, arguments):
                self.call = function, arguments

            def __reduce__(self):
                return self.call

        mark = self.folder / "it ran"
        for call, name in (((os.system, (f"touch '{mark}'",)), "posix.system"),
                           ((eval, (f"open({str(mark)!r}, 'w')",)), "__builtin__.eval"),
                           ((getattr, ("text", "upper")), "__builtin__.getattr"),
                           ((map, (os.remove, [str(mark)])), "itertools.imap"),
                           ((site.addsitedir, (str(mark),)), "site.addsitedir"),
                           ((argparse.FileType, ()), "argparse.FileType"),
                           ((torch.load, (str(mark),)), "torch.serialization.load"),
                           ((subprocess.Popen, (["touch", str(mark)],)), "commands.Popen")):
            with self.subTest(name):
                torch.save({"w": torch.ones(2), "x": Evil(*call)}, self.folder / "evil.pt")
                said = self.ckpt("convert", self.folder / "evil.pt", self.folder / "out.pt",
                                 code=2)
                self.assertIn(f"its pickle calls {name}, which makes more than tensors", said)
                self.assertIn("try: a state dict: torch.save(model.state_dict(), path)", said)
                self.assertFalse(mark.exists() or (self.folder / "out.pt").exists())
        # An object that no call makes, a callable that another one calls, and one without a call.
        torch.save({"w": torch.ones(2), "parser": argparse.FileType()}, self.folder / "evil.pt")
        said = self.ckpt("convert", self.folder / "evil.pt", self.folder / "out.pt", code=2)
        self.assertIn("its pickle calls argparse.FileType, which", said)
        through = Evil(torch._tensor._rebuild_from_type_v2,
                       (os.system, torch.Tensor, (f"touch '{mark}'",), {}))
        torch.save({"w": torch.ones(2), "x": through}, self.folder / "evil.pt")
        said = self.ckpt("convert", self.folder / "evil.pt", self.folder / "out.pt", code=2)
        self.assertIn("its pickle calls posix.system, which", said)
        torch.save({"w": torch.ones(2), "x": os.system}, self.folder / "evil.pt")
        said = self.ckpt("convert", self.folder / "evil.pt", self.folder / "out.pt", code=2)
        self.assertIn("its pickle names posix.system, which", said)
        self.assertFalse(mark.exists() or (self.folder / "out.pt").exists())

    def test_objects_without_code_do_not_make_a_file_unreadable(self):
        torch.jit.script(torch.nn.Conv2d(1, 2, 3, padding=1)).save(self.folder / "conv.pt")
        torch.save({"w": torch.ones(2), "path": pathlib.PurePosixPath("a"),
                    "part": functools.partial(int, base=2), "kind": OwnKind.one},
                   self.folder / "objects.pt")
        for name, tensors in (("conv", 2), ("objects", 1)):
            said = self.ckpt("convert", self.folder / f"{name}.pt", self.folder / "out.pt")
            self.assertIn(f"{tensors} tensors", said)

    def test_reads_training_states_and_tensors_with_attributes(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(3, 2)).sum().backward()
        optimizer.step()
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        named = torch.ones(2)
        named.origin = "a note"
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                 "schedule": schedule.state_dict(), "random": torch.get_rng_state(),
                 "numpy": numpy.random.get_state(), "best": numpy.float64(0.5),
                 "version": torch.__version__, "when": datetime.datetime.now(),
                 "shape": torch.Size([2]), "device": torch.device("cpu"), "seen": {1, 2},
                 "counts": collections.Counter("aab"), "complex": 1j, "raw": b"\xff",
                 "parameter": torch.nn.Parameter(torch.full((2,), 3.0)), "named": named}
        torch.save(state, self.folder / "training.pt")
        self.ckpt("convert", self.folder / "training.pt", self.folder / "out.safetensors")
        found = load_file(self.folder / "out.safetensors")
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(found[f"model.{name}"], tensor), name)
        moments = optimizer.state_dict()["state"]
        self.assertTrue(torch.equal(found["optimizer.state.0.exp_avg"], moments[0]["exp_avg"]))
        for name in ("parameter", "named"):
            self.assertTrue(torch.equal(found[name], state[name].detach()), name)
        torch.save(model, self.folder / "whole.pt")
        self.assertIn("7 tensors",
                      self.ckpt("convert", self.folder / "whole.pt", self.folder / "out.pt"))

    def test_reads_the_objects_that_training_states_have(self):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = {"model": model.state_dict(), "args": argparse.Namespace(lr=1), "seed": 2**63 + 1,
                 "optimizer": optimizer, "run": uuid.uuid4(), "random": random.Random(1),
                 "schedule": torch.optim.lr_scheduler.StepLR(optimizer, 2), "set": frozenset({1}),
                 "options": types.SimpleNamespace(a=1), "generator": numpy.random.default_rng(),
                 "average": torch.optim.swa_utils.AveragedModel(model), "raw": bytearray(b"x"),
                 "scaler": torch.amp.GradScaler("cpu"), "last": collections.deque([1], maxlen=3),
                 "array": numpy.ones(3), "by_name": collections.defaultdict(list)}
        state["by_name"]["t"] = torch.full((2,), 5.0)
        for protocol in (2, 4, 5):
            with self.subTest(protocol=protocol):
                torch.save(state, self.folder / "state.pt", pickle_protocol=protocol)
                self.ckpt("convert", self.folder / "state.pt", self.folder / "out.safetensors")
                found = load_file(self.folder / "out.safetensors")
                self.assertTrue(torch.equal(found["by_name.t"], state["by_name"]["t"]))
                average = found["average._modules.module._parameters.weight"]
                self.assertTrue(torch.equal(average, model.weight.detach()))

    def test_rules_refuse_a_name_that_is_too_long_for_them(self):
        torch.save({"a" * 300_001: torch.ones(2)}, self.folder / "long.pt")
        said = self.ckpt("convert", self.folder / "long.pt", self.folder / "out.pt", "--drop",
                         "a.*b", code=2)
        self.assertIn("has 300001 letters", said)

    def test_a_run_starts_from_weights_of_a_file(self):
        trained = self.trained("--set", "train.steps=3", name="first")
        self.ckpt("convert", trained, self.folder / "w.pt")
        words = ("--set", f"model.weights={self.folder}/w.pt", "--set", "train.steps=0")
        start = self.trained(*words, name="start")
        self.assertIn("the same", self.ckpt("diff", trained, start))
        two = self.trained(*words, "--workers", "2", name="two")
        self.assertIn("the same", self.ckpt("diff", trained, two))
        last = list(torch.load(self.folder / "w.pt", weights_only=True))[-1]
        self.ckpt("convert", trained, self.folder / "less.pt", "--drop", f"^{last}$")
        less = ("--set", f"model.weights={self.folder}/less.pt", "--set", "train.steps=0")
        code, out, err = self.run_to_end(TRIREME, "train", DIGITS, "--set", "model.name=mlp", *less,
                                         "--set", f"run.dir={self.folder}/lacks")
        self.assertEqual(code, 2, out + err)
        self.assertIn(f"the file lacks {last}", err)
        (self.folder / "w.pt").unlink()  # A run that continues needs it no more.
        again = self.trained(*words, "--set", "train.steps=2", name="start")
        self.assertIn("step-000000002", str(again))
        part = self.trained(*less, "--set", f"model.weights_optional=^{last}$", name="part")
        self.assertEqual(self.ckpt("diff", trained, part, code=1).count("differ"), 1)

    def test_weights_that_do_not_fit_are_refused(self):
        torch.save({"w": torch.ones(2)}, self.folder / "other.pt")
        for words, part, code in (
                (("model.weights=absent.pt",), "there is no such file", 2),
                (("model.weights_optional=^a",), "model.weights names no file", 2),
                ((f"model.weights={self.folder}/other.pt",), "does not fit the model", 2),
                ((f"model.weights={self.folder}/other.pt", "model.weights_optional=("),
                 "is no regular expression", 2)):
            with self.subTest(words=words):
                settings = [word for setting in words for word in ("--set", setting)]
                code_found, out, err = self.run_to_end(
                    TRIREME, "train", DIGITS, *settings, "--set",
                    f"run.dir={self.folder}/refused", timeout=60)
                self.assertEqual(code_found, code, out + err)
                self.assertIn(part, err)

    def test_diff_tells_types_and_shapes_apart(self):
        torch.save({"mask": torch.tensor([True, False]), "line": torch.ones(4)},
                   self.folder / "a.pt")
        torch.save({"mask": torch.tensor([1, 0], dtype=torch.uint8), "line": torch.ones(2, 2)},
                   self.folder / "b.pt")
        said = self.ckpt("diff", self.folder / "a.pt", self.folder / "b.pt", code=1)
        self.assertIn("mask: bool[2] and uint8[2]", said)
        self.assertIn("line: float32[4] and float32[2, 2]", said)

    def test_prune_removes_links_and_not_their_targets(self):
        archive = self.trained("--set", "train.steps=3", "--set", "checkpoint.every=1", "--set",
                               "checkpoint.keep=9", name="archive").parent
        runs = self.folder / "linked"
        runs.mkdir()
        for step in archive.glob("step-*"):
            (runs / step.name).symlink_to(step)
        self.ckpt("prune", runs, "--keep", "1")
        self.assertEqual([p.name for p in runs.glob("step-*")], ["step-000000003"])
        self.assertEqual(self.ckpt("verify", archive).count("whole"), 3)

    def test_reads_archives_of_modules(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval()
        torch.jit.script(model).save(self.folder / "model.pt")
        self.ckpt("convert", self.folder / "model.pt", self.folder / "model.safetensors")
        read = load_file(self.folder / "model.safetensors")
        for key, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(read[key], tensor), key)

    def test_the_format_before_1_6_is_refused_by_name(self):
        torch.save({"w": torch.ones(2)}, self.folder / "old.pt",
                   _use_new_zipfile_serialization=False)
        self.assertIn("before 1.6", self.ckpt("convert", self.folder / "old.pt",
                                              self.folder / "new.safetensors", code=2))

    def test_diff_names_the_tensors_that_differ_and_by_how_much(self):
        torch.save({"w": torch.tensor([1.0, 2.0]), "gone": torch.ones(1), "same": torch.ones(2)},
                   self.folder / "a.pt")
        torch.save({"w": torch.tensor([1.0, 2.5]), "new": torch.ones(1), "same": torch.ones(2)},
                   self.folder / "b.pt")
        said = self.ckpt("diff", self.folder / "a.pt", self.folder / "b.pt", code=1)
        for part in ("w: 1 of 2 elements differ, by 0.5 at most", "gone: only in the first",
                     "new: only in the second"):
            self.assertIn(part, said)
        self.assertNotIn("same", said)

    def test_verify_names_the_damage_and_prune_keeps_the_newest_whole_one(self):
        newest = self.trained("--set", "train.steps=4", "--set", "checkpoint.every=1", "--set",
                              "checkpoint.keep=9")
        folder = newest.parent
        self.assertEqual(self.ckpt("verify", folder).count("whole"), 4)
        file = newest / "model.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        said = self.ckpt("verify", folder, code=1)
        self.assertIn(str(file), said)
        self.assertEqual(said.count("whole"), 3)
        self.ckpt("verify", newest, code=1)
        self.ckpt("prune", folder, "--keep", "1")
        self.assertEqual(sorted(p.name for p in folder.glob("step-*")),
                         ["step-000000003", "step-000000004"])
        self.ckpt("verify", folder / "step-000000003")

    def test_keeps_every_nth_and_the_newest(self):
        newest = self.trained("--set", "train.steps=7", "--set", "checkpoint.every=1", "--set",
                              "checkpoint.keep=1",
                              "--set", "checkpoint.keep_every=3")
        self.assertEqual(sorted(p.name for p in newest.parent.glob("step-*")),
                         ["step-000000003", "step-000000006", "step-000000007"])

    def sliced(self, weights, ranks):
        """A checkpoint as `ranks` ranks write it, each the same number of rows of every weight."""
        path = self.folder / f"by-{ranks}" / "step-000000007"
        path.mkdir(parents=True)
        slices = {}
        for rank in range(ranks):
            part = f"-{rank}" if rank > 0 else ""
            model, of_file = {}, {}
            for weight, whole in weights.items():
                rows = len(whole) // ranks
                model[weight] = whole[rows * rank:rows * (rank + 1)].contiguous()
                of_file[weight] = {"tensor": weight, "shape": list(whole.shape),
                                   "from": [rows * rank, 0]}
            save_file(model | ({"b": torch.ones(3)} if rank == 0 else {}),
                      path / f"model{part}.safetensors")
            for kind in ("optimizer", "pieces"):
                save_file({}, path / f"{kind}{part}.safetensors")
            slices[f"model{part}.safetensors"] = of_file
        save_file({"loss": torch.ones(7, dtype=torch.float64)}, path / "history.safetensors")
        files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                 for file in path.iterdir()}
        writers = {name: int(name.split("-")[1].split(".")[0]) if "-" in name else 0
                   for name in files}
        text = json.dumps({"format": 3, "version": "0", "step": 7,
                           "position": {"epoch": 0, "consumed": 7}, "aliases": {"v": "w"},
                           "optimizer": {}, "config": {}, "extra": {}, "files": files,
                           "slices": slices, "writers": writers})[:-1]
        seal = hashlib.sha256(text.encode()).hexdigest()
        (path / "manifest.json").write_text(f'{text},\n  "sha256": "{seal}"\n}}\n')
        return path

    def test_slices_are_listed_with_their_ranks_and_merge_into_one_file(self):
        weight = torch.arange(48, dtype=torch.float32).view(12, 4)
        by_4 = self.sliced({"w": weight}, 4)
        said = self.ckpt("inspect", by_4)
        for part in ("float32[12, 4]", "w[3:6, 0:4] of [12, 4]", "rank 1, model-1.safetensors",
                     "2 tensors, 51 elements"):
            self.assertIn(part, said)
        listed = json.loads(self.ckpt("inspect", by_4, "--json"))["slices"]
        self.assertEqual([(each["rank"], each["from"], each["sizes"]) for each in listed],
                         [(rank, [3 * rank, 0], [3, 4]) for rank in range(4)])
        self.ckpt("verify", by_4)
        self.assertTrue(torch.equal(load_file(by_4 / "model-2.safetensors")["w"], weight[6:9]))
        for name, read in (("all.safetensors", load_file),
                           ("all.pt", lambda path: torch.load(path, weights_only=True))):
            self.ckpt("convert", by_4, self.folder / name)
            merged = read(self.folder / name)
            self.assertEqual(set(merged), {"w", "v", "b"})
            self.assertTrue(torch.equal(merged["w"], weight))
            self.assertTrue(torch.equal(merged["v"], weight))
        self.assertIn("the same", self.ckpt("diff", by_4, self.sliced({"w": weight}, 3)))
        self.assertIn("w: 1 of 48 elements differ", self.ckpt(
            "diff", by_4, self.sliced({"w": weight + (weight == 17)}, 2), code=1))

    def test_slices_of_a_model_merge_in_memory_for_one_of_its_tensors(self):
        # 24 tensors of 8 MiB in slices, and memory for 4 of them. The limit is of the memory that
        # a process can write. The checkpoint's files are mapped to be read, and the system takes
        # their pages back when it needs them, so the resident set would not tell.
        lines = torch.arange(2048 * 1024, dtype=torch.float32).view(2048, 1024)
        names = ["w", *(f"w{i}" for i in range(1, 24))]
        checkpoint = self.sliced({name: lines + i for i, name in enumerate(names)}, 2)

        def limit_memory():
            resource.setrlimit(resource.RLIMIT_DATA, (32 << 20, 32 << 20))

        for file in ("all.safetensors", "all.pt"):
            with self.subTest(file):
                code, out, err = self.run_to_end(TRIREME, "ckpt", "convert", checkpoint,
                                                 self.folder / file, preexec_fn=limit_memory)
                self.assertEqual(code, 0, out + err)
        with safe_open(self.folder / "all.safetensors", "pt") as merged:
            self.assertEqual(set(merged.keys()), {*names, "v", "b"})
            for i, name in enumerate(names):
                self.assertTrue(torch.equal(merged.get_tensor(name), lines + i), name)
        merged = torch.load(self.folder / "all.pt", weights_only=True, mmap=True)
        self.assertEqual(set(merged), {*names, "v", "b"})
        for i, name in enumerate(names):
            self.assertTrue(torch.equal(merged[name], lines + i), name)

    def test_a_missing_slice_is_named_with_its_rank(self):
        checkpoint = self.sliced({"w": torch.ones(6, 2)}, 3)
        (checkpoint / "model-2.safetensors").unlink()
        said = self.ckpt("verify", checkpoint, code=1)
        self.assertIn("model-2.safetensors is missing; rank 2 wrote it", said)

    def test_the_example_continues_in_python(self):
        checkpoint = self.trained("--set", "train.steps=60")
        code, out, err = self.run_to_end(sys.executable,
                                         ROOT / "examples/python/continue_training.py", checkpoint)
        self.assertEqual(code, 0, err)
        first, last = (float(line.rsplit(" ", 1)[1]) for line in out.splitlines())
        self.assertLess(first, 1.5)  # Random weights would give log(10).
        self.assertLess(last, first)


if __name__ == "__main__":
    unittest.main(verbosity=2)
