"""What a training continues from, without a lost worker or from a checkpoint."""

import ctypes
import json
import signal
import threading

from ._library import (DISMISSED, MEET_AGAIN, OK, STOPPED, Error, check, free, library,
                       view_of)

_PARAMETER, _BUFFER, _OPTIMIZER = 0, 1, 2


class _Left(Exception):
    """A loop is left, for no error."""

    def __init__(self, status):
        super().__init__(status)
        self.status = status


class State:
    """COLLECTIVE. The model, its optimizer, and `position`: a dictionary of the caller's with the
    place in the data, which JSON can hold. Make it behind distribute(). With a `folder` the newest
    checkpoint in it is where the job begins, and each `every`-th commit is saved there, in
    Trireme's format. Random numbers are not part of it: make them from the position."""

    def __init__(self, world, model, optimizer, position, folder=None, every=0):
        self.world, self.model, self.optimizer, self.position = world, model, optimizer, position
        self.steps = 0          # The commits of this state.
        self.stopped = False    # run_elastic() left the loop because a rank was asked to stop.
        self._wants_stop = False
        self._has_begun = False
        self._more = {}
        self._held = {}  # By name: the memory whose address the library has.
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter not in self._names:
                    raise ValueError("the optimizer has a parameter that is not of the model")
        for replica in world._living:
            if replica.model is model and replica._checks.optimizer is None:
                replica.follow(optimizer)
        self._handle = ctypes.c_void_p()
        check(library().trireme_state_new(
            world._handle, None if folder is None else str(folder).encode(), every,
            ctypes.byref(self._handle)))

    def include(self, name, part):
        """Adds an object with state_dict() and load_state_dict(), such as a schedule of learning
        rates. Its state is one that JSON can hold."""
        self._more[name] = part

    def commit(self):
        """COLLECTIVE. The end of a step, behind optimizer.step() and the change of `position`."""
        self._show()
        status = library().trireme_state_commit(self._handle, int(self._wants_stop))
        if status not in (OK, MEET_AGAIN, STOPPED):
            check(status)
        self.steps += 1
        if status != OK:
            raise _Left(status)

    def _tensors_of_optimizer(self):
        for parameter, name in self._names.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if hasattr(value, "data_ptr"):
                    yield f"{key}/{name}", value

    def _show(self):
        """Tells the library where everything is."""
        found = [(name, _PARAMETER, tensor) for name, tensor in self.model.named_parameters()]
        found += [(name, _BUFFER, tensor) for name, tensor in self.model.named_buffers()]
        found += [(name, _OPTIMIZER, tensor) for name, tensor in self._tensors_of_optimizer()]
        for name, kind, tensor in found:
            held = self._held.get(name)
            if held is None or held.data_ptr() != tensor.data_ptr():
                self._held[name] = tensor.detach()
                check(library().trireme_state_hold(self._handle, name.encode(), kind,
                                                   ctypes.byref(view_of(self._held[name]))))
        groups = [{**{key: _plain(value) for key, value in group.items() if key != "params"},
                   "params": [self._names[parameter] for parameter in group["params"]]}
                  for group in self.optimizer.param_groups]
        values = {name: {key: value for key, value in self.optimizer.state[parameter].items()
                         if not hasattr(value, "data_ptr")}
                  for parameter, name in self._names.items() if parameter in self.optimizer.state}
        tensors = {name: [str(tensor.dtype).replace("torch.", ""), list(tensor.shape)]
                   for name, tensor in self._tensors_of_optimizer()}
        note = {"position": self.position, "groups": groups, "values": values, "tensors": tensors,
                "more": {name: part.state_dict() for name, part in self._more.items()}}
        check(library().trireme_state_note(self._handle, json.dumps(note).encode()))

    def _begin(self, status):
        """Takes the newest state of all. Returns whether the job goes on with this process."""
        if not self._has_begun:
            self._show()
            self._has_begun = True
        steps = ctypes.c_int64()
        told = library().trireme_state_begin(self._handle, status, ctypes.byref(steps))
        if told == DISMISSED:
            return False
        check(told)
        self.steps = steps.value
        self._take(json.loads(library().trireme_state_read_note(self._handle)))
        return True

    def _take(self, note):
        import torch
        with torch.no_grad():
            for named in (self.model.named_parameters(), self.model.named_buffers()):
                for name, tensor in named:
                    if tensor.data_ptr() != self._held[name].data_ptr():
                        tensor.copy_(self._held[name])
                    tensor.grad = None
        by_name = {name: parameter for parameter, name in self._names.items()}
        self.optimizer.state.clear()
        for name, values in note["values"].items():
            self.optimizer.state[by_name[name]] = dict(values)
        for full_name, (dtype, shape) in note["tensors"].items():
            key, name = full_name.split("/", 1)
            value = torch.empty(shape, dtype=getattr(torch, dtype))
            check(library().trireme_state_read(self._handle, full_name.encode(),
                                               ctypes.byref(view_of(value))))
            self.optimizer.state[by_name[name]][key] = value
        for group, saved in zip(self.optimizer.param_groups, note["groups"]):
            for key, value in saved.items():
                if key == "params":
                    group[key] = [by_name[name] for name in value]
                else:
                    old = group.get(key)
                    group[key] = tuple(value) if isinstance(old, tuple) else value
        for name, part in self._more.items():
            part.load_state_dict(note["more"][name])
        self.position.clear()
        self.position.update(note["position"])

    def __del__(self):
        free("trireme_state_free", getattr(self, "_handle", None))


def _plain(value):
    return value.item() if hasattr(value, "item") else value


def run_elastic(state, loop):
    """Takes the newest state, and runs `loop` to its end. In an elastic job (`trireme launch
    --elastic MIN:MAX -- ...`) a worker that is lost costs the steps since the last commit(): the
    others meet again, all take the newest state that one of them has, and `loop` is called again.
    Processes that join get the state too. So the loop begins by what `state.position` says, and
    asks for rank, size and shares anew. SIGTERM, SIGINT and SIGHUP on any rank end the loop on all
    ranks in the next commit(), and the state is saved. Returns False if the job goes on without
    this process."""
    status, error = OK, None
    with _Listening(state):
        while True:
            try:
                if not state._begin(status):
                    return False
            except Error as now:
                if error is not None and now.status == status:
                    raise error  # No lost worker was its cause.
                raise
            try:
                loop()
                check(library().trireme_state_end(state._handle))
                return True
            except _Left as left:
                status, error = left.status, None
                if status == STOPPED:
                    state.stopped = True
                    return True
            except Error as lost:
                status, error = lost.status, lost


class _Listening:
    """While it is there, a request to stop is kept for the next commit."""

    def __init__(self, state):
        self.state, self.before = state, {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                self.before[number] = signal.signal(number, self.asked)

    def asked(self, *_):
        self.state._wants_stop = True

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)
