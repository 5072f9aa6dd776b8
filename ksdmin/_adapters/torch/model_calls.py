"""How a model is called, and how its outputs become one tensor with a row per sample.

The kernels work with one tensor z. If the loss takes several outputs, those of each sample are
joined in z, and the loss separates them again, so that derivatives in all of them are derivatives
in z.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ksdmin._adapters.trees import (
    entries_or_fields,
    is_namedtuple,
    paths,
    rebuilt,
    tree_leaves,
    tree_map,
)


def arguments(model: nn.Module, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments that `inputs` stand for.

    A tuple is positional arguments. A dict or a namedtuple is keyword arguments if the forward pass
    takes these; otherwise it is the only argument.
    """
    named = None
    if isinstance(inputs, Mapping):
        named = dict(inputs)
    elif is_namedtuple(inputs):
        named = inputs._asdict()
    if named is None:
        return (inputs if isinstance(inputs, tuple) else (inputs,)), {}
    if all(isinstance(name, str) for name in named) and takes(model, (), named):
        return (), named
    return (inputs,), {}


def takes(model: nn.Module, positional: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether the forward pass of a model takes these arguments."""
    try:
        inspect.signature(model.forward).bind(*positional, **named)
    except TypeError:
        return False
    except ValueError:  # no signature: a function of C
        return True
    return True


def detached(tree: Any) -> Any:
    """The tensors without their graphs and requires_grad flags."""
    return tree_map(lambda leaf: leaf.detach() if isinstance(leaf, Tensor) else leaf, tree)


def row_count(inputs: Any) -> int:
    """How many samples there are in the inputs of a chunk."""
    return len(tree_leaves(inputs)[0])


CHOOSE = (
    "Choose with output=: a name, an index, or a function of the outputs that returns a tensor or "
    "a tuple of tensors"
)


Reader = Callable[[Any, int], Tensor]
"""Reads the outputs of a model for so many samples as one tensor, with a row for each."""


def one_tensor(output: Any, outputs: Any, rows: int) -> Tensor:
    """The one tensor that a model returns, or that `output` chooses from its outputs."""
    z: Tensor = chosen(outputs, output)
    return z


class SeveralTensors:
    """Several outputs, laid side by side."""

    def __init__(
        self,
        output: Any,  # str, int, callable or None: as in :func:`ksdmin.from_torch`
        example: Any,  # the chosen outputs for a few samples
    ) -> None:
        self._output = output
        leaves = [leaf for _, leaf in paths(example, entries_or_fields)]
        bare = (leaf if leaf is None else leaf.detach() for leaf in leaves)
        self.example = rebuilt(example, bare, entries_or_fields)
        self.shapes = [None if leaf is None else tuple(leaf.shape[1:]) for leaf in leaves]

    @property
    def sizes(self) -> list[int]:
        """How many entries of a row each tensor has."""
        return [math.prod(shape) for shape in self.shapes if shape is not None]

    def __call__(self, outputs: Any, rows: int) -> Tensor:
        """All entries of a sample in a row."""
        leaves = [leaf for _, leaf in paths(chosen(outputs, self._output), entries_or_fields)]
        shapes = [None if leaf is None else tuple(leaf.shape[1:]) for leaf in leaves]
        if shapes != self.shapes:
            raise ValueError(
                f"the outputs of a sample have the shapes {shapes}, but had {self.shapes} before: "
                "several outputs must keep their shapes"
            )
        return torch.cat(
            [leaf.reshape(leaf.shape[0], -1) for leaf in leaves if leaf is not None], 1
        )

    def unpack(self, z: Tensor) -> Any:
        """The outputs in their own form, from the rows."""
        pieces = iter(torch.split(z, self.sizes, 1))
        made = (None if s is None else next(pieces).reshape(-1, *s) for s in self.shapes)
        return rebuilt(self.example, made, entries_or_fields)


def reader_of(outputs: Any, rows: int, output: Any, model: str) -> Reader:
    """The reader of a model's outputs, found from those for `rows` samples."""
    kept = chosen(outputs, output)
    if isinstance(kept, Tensor):
        return partial(one_tensor, output)
    leaves = list(paths(kept, entries_or_fields))

    def is_per_sample(leaf: Any) -> bool:
        return isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.shape[:1] == (rows,)

    faults = [
        f"{''.join(f'[{key!r}]' for key in path) or 'it'} is {_described(leaf)}"
        for path, leaf in leaves
        if leaf is not None and not is_per_sample(leaf)
    ]
    if faults or all(leaf is None for _, leaf in leaves):
        raise TypeError(
            f"{model} returned {description(kept)} for {rows} samples; a loss can take tensors of "
            f"real numbers with the samples as first axis only. {CHOOSE}"
            + (f" ({', '.join(faults)})" if faults else "")
        )
    return SeveralTensors(output, kept)


def chosen(outputs: Any, output: Any) -> Any:
    """The part of the outputs that ``output=`` names; by default the logits, or all of them."""
    if isinstance(outputs, Tensor) and output is None:
        return outputs
    if output is None:
        logits = field(outputs, "logits")
        return outputs if logits is None else logits
    if callable(output):
        return output(outputs)
    found = field(outputs, output) if isinstance(output, str) else _entry(outputs, output)
    if found is None:
        raise ValueError(f"output={output!r}: the model returned {description(outputs)}")
    return found


def check_output(output: Any) -> None:
    """Raise for an argument that does not choose an output."""
    whole_number = isinstance(output, int) and not isinstance(output, bool)
    if not (output is None or isinstance(output, str) or whole_number or callable(output)):
        raise TypeError(
            "output: expected the name of an output, its index, or a function of the outputs, not "
            f"{type(output).__name__}"
        )


def field(outputs: Any, name: str) -> Any:
    """An entry or attribute by its name; None if there is none."""
    if isinstance(outputs, Tensor):
        return None
    if isinstance(outputs, Mapping):
        return outputs.get(name)
    return getattr(outputs, name, None)


def _entry(outputs: Any, index: int) -> Any:
    try:
        return None if isinstance(outputs, Tensor) else outputs[index]
    except (IndexError, KeyError, TypeError):
        return None


def description(outputs: Any) -> str:
    """What a model returned, in words: the names and shapes of its outputs."""
    parts = entries_or_fields(outputs)
    if parts is None:
        return _described(outputs)
    kind = type(outputs).__name__
    listed = ", ".join(f"{name!r}: {_described(part)}" for name, part in parts)
    return f"a {kind} of {listed}" if listed else f"an empty {kind}"


def _described(part: Any) -> str:
    if not isinstance(part, Tensor):
        return "None" if part is None else f"a {type(part).__name__}"
    dtype = "" if part.is_floating_point() else f" of {str(part.dtype).removeprefix('torch.')}"
    return f"a tensor{dtype} of shape {tuple(part.shape)}"


# What a forward pass depends on beside its arguments: modes, generators, statistics of batches.
# Evaluations keep the train and eval modes of ``from_torch``'s time.


_TRAINING, _TRACKING = attrgetter("training"), attrgetter("track_running_stats")


class KeptModes:
    """The modes of modules, in which they are evaluated whatever the user sets later.

    A user looks at a model in eval mode between two iterations; the objective must stay the same
    function, and a CUDA graph would not see the new mode. Modules that are added later keep their
    own mode. BatchNorm in train mode leaves its running statistics alone.
    """

    def __init__(self) -> None:
        self._modules: list[nn.Module] = []
        self._training: list[bool] = []
        self._norms: list[Any] = []

    def add(self, *things: Any) -> None:
        """Keep the modes that the modules among `things` have now."""
        modules = [one for one in things if isinstance(one, nn.Module)]
        found = [module for one in modules for module in one.modules()]
        self._modules += found
        self._training += map(_TRAINING, found)
        self._norms += [norm for one in modules for norm in batch_norms(one)]

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """The modules are in the modes that were kept; afterwards in those of before."""
        before, tracking = list(map(_TRAINING, self._modules)), list(map(_TRACKING, self._norms))
        if before == self._training and not any(tracking):
            yield
            return
        self._set(self._training, [False] * len(tracking))
        try:
            yield
        finally:
            self._set(before, tracking)

    @contextmanager
    def in_eval(self, only: Collection[nn.Module] | None = None) -> Iterator[None]:
        """Evaluations are in eval mode for a while: all modules, or some `only`."""
        kept = self._training
        self._training = [
            training and only is not None and module not in only
            for module, training in zip(self._modules, kept, strict=True)
        ]
        try:
            yield
        finally:
            self._training = kept

    def _set(self, training: Sequence[bool], tracking: Sequence[bool]) -> None:
        # nn.Module's own __setattr__ takes 20 times as long
        for module, mode in zip(self._modules, training, strict=True):
            object.__setattr__(module, "training", mode)
        for norm, tracks in zip(self._norms, tracking, strict=True):
            object.__setattr__(norm, "track_running_stats", tracks)


# Torch's global random generators, which a model draws from (dropout): seeded and restored


@contextmanager
def seeded_generators(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's global generators start from `seed`; afterwards their states are restored."""
    with restored_generators(device):
        for generator in generators(device):
            generator.manual_seed(seed)
        yield


def restored_generators(device: torch.device) -> AbstractContextManager[None]:
    """Afterwards the states of the generators are restored: the same will be drawn again."""
    return torch.random.fork_rng([device.index] if device.type == "cuda" else [])


def generator_states(device: torch.device) -> list[Tensor]:
    """The states of the generators."""
    return [generator.get_state() for generator in generators(device)]


def set_generator_states(states: list[Tensor], device: torch.device) -> None:
    """Put the generators into these states."""
    for generator, state in zip(generators(device), states, strict=True):
        generator.set_state(state)


def generators(device: torch.device) -> list[torch.Generator]:
    """Torch's global generators that a model on `device` may draw from."""
    if device.type != "cuda":
        return [torch.default_generator]
    return [torch.default_generator, torch.cuda.default_generators[device.index]]


# BatchNorm in train mode, which normalises by the statistics of a batch


# Samples of a batch: as many as batches of a stochastic method have, as a rule. On the digits of
# scikit-learn a residual net has a loss of 0.005 to 0.008 after 40 passes with 128, 256 and all of
# 1347 samples.
BATCH_SAMPLES = 256
# Samples of the smallest sets: with smaller batches BatchNorm soon becomes worse (Wu and He, 2018,
# "Group normalization").
FEWEST_SAMPLES = 32
# Running statistics are taken from so many samples at most: the error of a mean is then 1% of the
# standard deviation.
STATISTICS_SAMPLES = 10_000


def batch_norms(model: nn.Module) -> list[Any]:
    """The modules that normalise by the statistics of the batch."""
    found = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    return [module for module in found if takes_statistics(module)]


def takes_statistics(norm: Any) -> bool:
    """Whether a BatchNorm takes the statistics of the batch, and not its running ones."""
    return norm.training or norm.running_mean is None


def tracking(norms: list[Any]) -> list[Any]:
    """Those that have running statistics."""
    return [norm for norm in norms if norm.running_mean is not None]


@contextmanager
def taking_statistics(norms: list[Any]) -> Iterator[None]:
    """Forward passes average the statistics of their batches; these become the running ones."""
    before = [(norm.momentum, norm.track_running_stats) for norm in norms]
    try:
        for norm in norms:
            norm.momentum, norm.track_running_stats = None, True  # None: the mean of all batches
            norm.reset_running_stats()
        yield
    finally:
        for norm, (momentum, tracks) in zip(norms, before, strict=True):
            norm.momentum, norm.track_running_stats = momentum, tracks
