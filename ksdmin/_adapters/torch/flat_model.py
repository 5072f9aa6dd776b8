"""A torch module as a function of one flat vector."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import is_lazy

from ksdmin._adapters.arguments import REAL_PARTS, check_real
from ksdmin._adapters.curvature import is_bent, is_nonlinear
from ksdmin._adapters.names import Names
from ksdmin._adapters.torch.model_calls import (
    KeptModes,
    Reader,
    arguments,
    batch_norms,
    detached,
    one_tensor,
    restored_generators,
    row_count,
)
from ksdmin._adapters.trees import tree_map
from ksdmin._problem.arrays import to_host

CHECK_DISTANCE = 0.1  # a model is checked at this distance from x0, relative to its size
ROUNDINGS = 100  # relative deviation of outputs from a line that is not due to nonlinearity
PRECISIONS = ("highest", "high", "bfloat16")
# One thread at a time: a forward pass puts our parameters into the module, and the arithmetic and
# the generators are settings of the whole process, so that one lock per module would not be enough.
LOCK = RLock()


class FlatModel:
    """`model` with its trainable parameters in one vector; it sees views of that vector."""

    def __init__(
        self,
        # Its parameters that require a gradient are the variables; tied ones count once.
        model: nn.Module,
        # Only these parameters are variables. The name of a module stands for those of its
        # parameters that require a gradient.
        params: Iterable[str | Tensor] | None,
        # {"highest", "high", "bfloat16"}: how matrix products of float32 parameters are computed:
        # in float32, with TF32, or in bfloat16 through autocast.
        precision: str,
    ) -> None:
        precision = "highest" if precision == "float32" else precision  # it never turns to float64
        if precision not in PRECISIONS:
            raise ValueError(f"precision={precision!r}: expected one of {PRECISIONS}, or 'float32'")
        self.model, self.precision = model, precision
        self.is_random = False  # whether a forward pass draws random numbers (dropout)
        self.reader: Reader = partial(one_tensor, None)
        self.writes_into_inputs = False  # as with an in-place ReLU as the first layer
        # Whether a backward pass reads the module's parameters again (activation checkpoints)
        self.recomputes = False
        self._names, parameters = _select(model, params)
        self.shapes = [tuple(p.shape) for p in parameters]
        self.sizes = [p.numel() for p in parameters]
        self.x0 = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.device = self.x0.device
        self.is_recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
        self.batch_norms = batch_norms(model)  # those that take the statistics of the batch
        self.modes = KeptModes()
        self.modes.add(model)

    def of(self, model: Any) -> FlatModel:
        """The same variables of a copy of the module, in the dtype that this has."""
        return FlatModel(model, self._names, "highest")

    def __call__(self, parameters: list[Tensor], inputs: Any, *, raw: bool = False) -> Any:
        """The outputs as one tensor, in the dtype of the parameters; or as the module has them."""
        positional, keywords = arguments(self.model, self.own_inputs(inputs))
        named = dict(zip(self._names, parameters, strict=True))
        with LOCK:
            outputs = torch.func.functional_call(self.model, named, positional, keywords)
        return outputs if raw else self.read(outputs, inputs)

    def own_inputs(self, inputs: Any) -> Any:
        """The inputs for one pass: copies where the model writes into them.

        Without their own flags: a model that differentiates in its inputs sets requires_grad.
        """
        own = detached(inputs)
        return tree_map(Tensor.clone, own) if self.writes_into_inputs else own

    def read(self, outputs: Any, inputs: Any) -> Tensor:
        """What the module returned for `inputs`, as one tensor with a row per sample."""
        z = self.reader(outputs, row_count(inputs))
        check_real(z, "the model", REAL_PARTS)
        return z.to(self.x0.dtype)

    def derivatives(
        self,
        parameters: list[Tensor],
        outputs: Any,
        along: Any = None,
        *,
        of: Any = None,
        **how: Any,
    ) -> tuple[Any, ...]:
        """``torch.autograd.grad`` in the parameters, or `of` others; None for what has no effect.

        The module has these parameters where a backward pass reads them again.
        """
        inputs = parameters if of is None else of
        grad = partial(torch.autograd.grad, outputs, inputs, along, allow_unused=True, **how)
        grads: tuple[Any, ...] = self.holding(parameters, grad) if self.recomputes else grad()
        return grads

    def flat(self, pieces: Iterable[Tensor | None], like: Tensor) -> Tensor:
        """One vector of pieces for all parameters; None, for an unused one, becomes zeros."""
        shapes = zip(pieces, self.sizes, strict=True)
        return torch.cat([like.new_zeros(n) if u is None else u.reshape(-1) for u, n in shapes])

    def holding(self, parameters: list[Tensor], function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``, during which the module has these `parameters`."""
        named = {f"model.{name}": p for name, p in zip(self._names, parameters, strict=True)}
        with LOCK:
            return torch.func.functional_call(_Held(self.model), named, (function, *args))

    def is_nonlinear(self, inputs: Any, at_x0: Tensor, nearby: Tensor) -> bool:
        """Whether the outputs are nonlinear in the parameters, apart from rounding and dropout.

        Two outputs are known: at x0 and `near_x0`.
        """

        def outputs(x: Tensor) -> Tensor:
            with self.restored_randomness():
                z: Tensor = self(self.split(x), inputs).detach()
                return z

        exact = torch.autocast(self.device.type, enabled=False)
        with self.arithmetic("highest"), exact:
            if self.precision != "highest":
                return is_nonlinear(outputs, self.x0)
            far = self.x0 + (self.near_x0() - self.x0) / CHECK_DISTANCE
            ends = to_host(at_x0), to_host(outputs(far))
        rounding = ROUNDINGS * torch.finfo(self.x0.dtype).eps
        return is_bent(ends[0], to_host(nearby), ends[1], CHECK_DISTANCE, rounding)

    def variables(self) -> dict[str, Tensor]:
        """The module's own tensors of the variables, by name."""
        every = dict(self.model.named_parameters())
        return {name: every[name] for name in self._names}

    def near_x0(self) -> Tensor:
        """A point to check a model at: at x0 itself, a fitted model's derivatives are rounding."""
        size = float(self.x0.square().mean().sqrt()) or 1.0
        return self.x0 + CHECK_DISTANCE * size * random_direction(self.x0, 0)

    def split(self, x: Tensor) -> list[Tensor]:
        """The parameters as views of the flat vector.

        On CUDA a parameter that does not start at a 16-byte boundary is copied: a matrix product
        that cannot load 16 bytes at a time takes half as long again, and the copy is cheap.
        """
        pieces = torch.split(x, self.sizes)
        if x.is_cuda:
            pieces = tuple(p.clone() if p.data_ptr() % 16 else p for p in pieces)
        return [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]

    def leaves(self, x: Tensor) -> list[Tensor]:
        """The parameters as views of the flat vector, each a leaf of the autograd graph."""
        return [piece.detach().requires_grad_() for piece in self.split(x)]

    def slices(self) -> dict[str, slice]:
        """The slice of the flat vector that each parameter takes."""
        ends = torch.tensor(self.sizes).cumsum(0).tolist()
        return {
            name: slice(end - size, end)
            for name, size, end in zip(self._names, self.sizes, ends, strict=True)
        }

    def load(self, x: Tensor) -> None:
        """Write a flat vector into the module."""
        with LOCK, torch.no_grad():
            for parameter, piece in zip(self.variables().values(), self.split(x), strict=True):
                parameter.copy_(piece)

    @contextmanager
    def arithmetic(self, precision: str) -> Iterator[None]:
        """The context of evaluations: a precision, and the modes that the model had at first.

        It uses kernels that can be differentiated twice.
        """
        with LOCK, ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            stack.enter_context(self.modes.in_force())
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(_tf32(precision == "high", self.device))
            stack.enter_context(_no_fast_path(self.is_recurrent))
            stack.enter_context(not_compiled())
            if precision == "bfloat16":
                stack.enter_context(
                    torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False)
                )
            elif torch.is_autocast_enabled(self.device.type):  # around the user's call
                stack.enter_context(torch.autocast(self.device.type, enabled=False))
            yield

    @contextmanager
    def restored_randomness(self) -> Iterator[None]:
        """The model will draw the same random numbers afterwards as within."""
        with ExitStack() as stack:
            if self.is_random:
                stack.enter_context(restored_generators(self.device))
            yield


@contextmanager
def _tf32(allow: bool, device: torch.device) -> Iterator[None]:
    """Whether matrix products use TF32; torch has two interfaces for it, and both are restored."""
    matmul, cudnn = _or_none(torch.get_float32_matmul_precision), torch.backends.cudnn
    wanted = "high" if allow else "highest"
    if matmul == wanted and device.type == "cpu":
        yield
        return
    newer = _fp32_precisions()
    convolution = _or_none(lambda: cudnn.allow_tf32)
    torch.set_float32_matmul_precision(wanted)
    cudnn.allow_tf32 = allow
    try:
        yield
    finally:
        if matmul is not None:
            torch.set_float32_matmul_precision(matmul)
        if convolution is not None:
            cudnn.allow_tf32 = convolution
        for setting, precision in newer:
            setting.fp32_precision = precision


def _fp32_precisions() -> list[tuple[Any, str]]:
    """The settings of torch's newer interface, where it has it, with their values."""
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    names = [(cuda, "matmul"), (cudnn, "conv"), (cudnn, "rnn"), (mkldnn, "matmul")]
    found: list[Any] = [getattr(backend, name, None) for backend, name in names]
    return [(one, one.fp32_precision) for one in found if hasattr(one, "fp32_precision")]


def _or_none(read: Callable[[], Any]) -> Any:
    """The older flag; None if the newer one has been set to something else (it then raises)."""
    try:
        return read()
    except RuntimeError:
        return None


@contextmanager
def _no_fast_path(recurrent: bool) -> Iterator[None]:
    """No fast path of attention in inference, and no cuDNN for recurrent networks.

    So values are computed as with gradients, and there are second derivatives, which the kernels
    of cuDNN lack.
    """
    mha, cudnn = torch.backends.mha, torch.backends.cudnn
    before = mha.get_fastpath_enabled(), cudnn.enabled
    mha.set_fastpath_enabled(False)
    cudnn.enabled = cudnn.enabled and not recurrent
    try:
        yield
    finally:
        mha.set_fastpath_enabled(before[0])
        cudnn.enabled = before[1]


def not_compiled() -> AbstractContextManager[Any]:
    """Run eagerly what torch.compile was applied to: compiled, it has no second derivatives."""
    set_stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    if set_stance is None or "torch._dynamo" not in sys.modules:  # then nothing is compiled
        return nullcontext()
    stance: AbstractContextManager[Any] = set_stance("force_eager")
    return stance


class _Held(nn.Module):
    """Runs a function with other parameters in a module."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


def random_direction(like: Tensor, seed: int) -> Tensor:
    """Normal numbers, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def doubled(thing: Any) -> Any:
    """A copy of a module whose parameters and buffers are float64; other things as they are."""
    if not isinstance(thing, nn.Module):
        return thing
    with LOCK:  # another thread may have its own parameters in it
        return copy.deepcopy(thing).double()


def _select(
    model: nn.Module, params: Iterable[str | Tensor] | None
) -> tuple[list[str], list[Tensor]]:
    """The variables: names and tensors; a tied parameter has the first of its names."""
    _check_replaceable(model)
    every: Mapping[str, Tensor] = dict(model.named_parameters())
    if params is None:
        chosen = [name for name, parameter in every.items() if parameter.requires_grad]
    else:
        wanted = [params] if isinstance(params, (str, Tensor)) else list(params)
        first = {id(parameter): name for name, parameter in every.items()}
        found = [first.get(id(one)) for each in wanted for one in _meant(model, each)]
        if None in found:
            raise ValueError("params: a tensor among them is not a parameter of the model")
        chosen = list(dict.fromkeys(name for name in found if name is not None))
    if not chosen:
        raise ValueError("the model has no trainable parameter: there is nothing to minimise over")
    parameters = [every[name] for name in chosen]
    check_alike(parameters, "pass precision='bfloat16'")
    return chosen, parameters


def _check_replaceable(model: nn.Module) -> None:
    """Raise for modules whose parameters cannot be replaced for a forward pass."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise TypeError(
                f"module {name!r} has been compiled by torch.jit, which fixes its parameters: give "
                "the module that it was made from (functions of torch.jit.script may be called)"
            )
        if hasattr(module, "_orig_mod") and not hasattr(torch.compiler, "set_stance"):
            raise TypeError(
                f"module {name!r} was compiled by torch.compile, which can be run eagerly from "
                "torch 2.6 on: give the module that it was made from, model._orig_mod"
            )
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            raise TypeError(
                f"module {name!r} is a {type(module).__name__}, which copies its parameters: give "
                "the module inside, model.module"
            )
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ValueError(
                f"the parameter {name!r} is not initialised: a lazy module learns its shape in the "
                "first forward pass. Call model(inputs) once before from_torch"
            )


def _meant(model: nn.Module, wanted: Any) -> list[Tensor]:
    """The parameters that one entry of ``params=`` means."""
    if isinstance(wanted, Tensor):
        return [wanted]
    if not isinstance(wanted, str):
        kind = type(wanted).__name__
        raise TypeError(
            f"params: expected names of parameters or modules, or Parameters, not {kind}"
        )
    aliases = dict(model.named_parameters(remove_duplicate=False))
    if wanted in aliases:
        return [aliases[wanted]]
    inside = [p for name, p in aliases.items() if name.startswith(f"{wanted}.")]
    if not inside:
        raise ValueError(f"params: the model has no parameter or module {wanted!r}")
    trainable: list[Tensor] = [parameter for parameter in inside if parameter.requires_grad]
    if not trainable:
        raise ValueError(
            f"params: no parameter of the module {wanted!r} requires a gradient: name the "
            "parameters themselves, or call its requires_grad_()"
        )
    return trainable


def check_alike(parameters: Sequence[Tensor], in_less: str) -> None:
    """Raise if parameters do not fit into one vector; `in_less` says how to compute in bfloat16."""
    for parameter in parameters:
        dtype, layout = parameter.dtype, parameter.layout
        if parameter.is_complex():
            raise TypeError(
                "a trainable parameter is complex; expected float32 or float64: keep its real and "
                "imaginary parts in one real parameter, and take torch.view_as_complex of it"
            )
        if layout != torch.strided:
            raise TypeError(f"a parameter has layout {layout}; expected a dense tensor")
        if dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"a parameter is {dtype}; expected float32 or float64 (for bfloat16 arithmetic "
                f"keep float32 parameters and {in_less})"
            )
    kinds = sorted({f"{parameter.dtype} on {parameter.device}" for parameter in parameters})
    if len(kinds) > 1:
        raise ValueError(
            f"the trainable parameters must share one dtype and device, found {', '.join(kinds)}"
        )


# The names of a module's parameters


def names_of(model: FlatModel) -> Names:
    """The names of ``named_parameters()``; tied parameters with each of their names."""
    own = model.slices()
    shapes = zip(own, model.shapes, strict=True)
    module = getattr(model, "module", model.model)
    if module is None:
        return Names(shapes, {}, [])
    first = {id(parameter): name for name, parameter in module.named_parameters()}
    aliases: dict[str, str] = {}
    constant = []
    for name, parameter in module.named_parameters(remove_duplicate=False):
        variable = first[id(parameter)]
        if variable in own:
            # without the prefix that torch.compile adds to names in a module
            aliases |= {name: variable, name.replace("_orig_mod.", ""): variable}
        else:
            constant.append(name)
    return Names(shapes, {k: name for k, name in aliases.items() if k != name}, constant)
