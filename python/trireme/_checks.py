"""Looks for mistakes of one rank before each step of a replica, so that every rank names them."""

import ctypes
import weakref

from ._library import check, library, view_of

_STEPS_BETWEEN_WALKS = 16
_NAMES = {"lr": "learning rate"}


class Checks:
    """The facts of a replica that all ranks have in common, and the form of its parameters."""

    def __init__(self, handle, model, named, replicas):
        self._handle, self.model = handle, model
        self._replicas = replicas  # All of the world.
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._known = set(map(id, self._parameters))
        # The library has their addresses as long as it has the gradients.
        self._memory = [parameter.detach() for parameter in self._parameters]
        self._places = [memory.data_ptr() for memory in self._memory]
        self.optimizer, self._keys = None, ()
        self._seen, self._told = None, {}
        self._looks, self._without_gradient = 0, set()

    def follow(self, optimizer):
        """Options of the optimizer are facts from now on."""
        self.optimizer = optimizer
        self._keys = [key for key in optimizer.defaults if key != "params"]

    def before_step(self):
        if [parameter.data_ptr() for parameter in self._parameters] != self._places:
            self._find_moved()
        seen = [self._modes(), [parameter.requires_grad for parameter in self._parameters]]
        for group in self._groups():
            seen.append(len(group["params"]))
            seen += [_plain(group.get(key)) for key in self._keys]
        if seen != self._seen:
            self._tell()
            self._seen = seen
        if self._looks % _STEPS_BETWEEN_WALKS == 0:
            self._find_unknown()
        self._looks += 1

    def _modes(self):
        return [module.training for module in self.model.modules()]

    def _groups(self):
        return self.optimizer.param_groups if self.optimizer else ()

    def behind_step(self, without_gradient):
        """`without_gradient` are the parameters without one on this rank, by number. Where a layer
        was replaced these are others than before."""
        if without_gradient != self._without_gradient:
            self._without_gradient = set(without_gradient)
            self._find_unknown()

    def refuse(self, what, remedy):
        """Raises an error on this rank now, and on the others in their next step."""
        check(library().trireme_gradients_refuse(self._handle, what.encode(), remedy.encode()))

    def _find_moved(self):
        for index, parameter in enumerate(self._parameters):
            if parameter.data_ptr() == self._places[index]:
                continue
            memory, held = parameter.detach(), self._memory[index]
            if _form(memory) != _form(held):
                self.refuse(f"parameter {self._names[index]} is {_form(memory)} now",
                            f"the form that it had in distribute(), {_form(held)}, or such a "
                            "change before distribute()")
            check(library().trireme_gradients_hold(self._handle, index,
                                                   ctypes.byref(view_of(memory))))
            self._memory[index], self._places[index] = memory, memory.data_ptr()

    def _find_unknown(self):
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad and not self._is_known(parameter):
                self.refuse(f"parameter {name} was registered, replaced or unfrozen behind "
                            "distribute(), and has gradients of this rank alone",
                            "such a change before distribute(), or a distribute() of the new layer "
                            "on all ranks")

    def _is_known(self, parameter):
        if id(parameter) in self._known:
            return True
        return any(id(parameter) in replica._checks._known for replica in self._replicas)

    def _tell(self):
        facts = {"choice of train() or eval()": self._modes(),
                 "choice of frozen parameters": [p.requires_grad for p in self._parameters]}
        if self.optimizer:
            facts["number of parameters in each group of the optimizer"] = [
                len(group["params"]) for group in self._groups()]
        for key in self._keys:
            facts[_NAMES.get(key, key)] = [_plain(group.get(key)) for group in self._groups()]
        for name, value in facts.items():
            if self._told.get(name) != repr(value):
                self._told[name] = repr(value)
                check(library().trireme_gradients_fact(self._handle, name.encode(),
                                                       repr(value).encode()))


class Updates:
    """Looks at each optimizer.step(): some replica of the optimizer must have the means of a
    backward() since the last one."""

    def __init__(self):
        self._replicas = weakref.WeakKeyDictionary()  # By optimizer.

    def follow(self, optimizer, replica):
        replicas = self._replicas.setdefault(optimizer, [])
        if not replicas and hasattr(optimizer, "register_step_pre_hook"):
            optimizer.register_step_pre_hook(self._before_update)
        replicas.append(weakref.ref(replica))

    def _before_update(self, optimizer, args, kwargs):
        if len(args) > 1 or kwargs:  # With a closure backward() comes behind this.
            return
        replicas = [weak() for weak in self._replicas[optimizer] if weak() is not None]
        if not replicas:
            return
        for replica in replicas:
            if replica._has_own_alone:
                replica._checks.refuse(
                    "optimizer.step() after a backward() under no_sync(): its gradients are those "
                    "of this rank alone", "the last backward() before step() outside no_sync()")
        if not any(replica._has_means for replica in replicas):
            replicas[0]._checks.refuse(
                "optimizer.step() without a backward() that reached a parameter of its model",
                "loss.backward() before each step() on every rank, by a loss of that model")
        for replica in replicas:
            replica._has_means = False


def _form(tensor):
    order = "" if tensor.is_contiguous() else ", not contiguous"
    dtype = str(tensor.dtype).replace("torch.", "")
    return f"{dtype} {list(tensor.shape)} on {tensor.device}{order}"


def _plain(value):
    """A tensor's number: two of them compare by value."""
    if value is None or type(value) in (float, int, bool, str):
        return value
    if type(value) in (tuple, list):
        return tuple(map(_plain, value))
    return value.item() if hasattr(value, "item") and value.numel() == 1 else str(type(value))
