"""What to say where torch cannot differentiate a backward pass, or a gradient is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor

from ksdmin._problem.arrays import Space
from ksdmin._problem.slope_check import slope_ratio

# In torch's messages: derivatives that it lacks, functions whose backward pass may be called once,
# and one that leaves torch for numpy.
_SIGNS = (
    "is not implemented",
    "differentiate twice",
    "once_differentiable",
    "ouble backward",
    "Can't call numpy() on Tensor that requires grad",
)
OWN_PRODUCTS = (
    "give products of your own (curvature=(x, idx) -> product), or do without: "
    "ksdmin.minimize(problem.fun, x, jac=problem.jac) with a numpy x takes differences of gradients"
)
OF_THE_MODEL = (
    "curvature products differentiate the model's backward pass, which torch cannot do: {error}. "
    "Compute the same with other operations (in an autograd.Function: a backward pass of torch "
    "operations, without once_differentiable), " + OWN_PRODUCTS
)
OF_THE_LOSS = (
    "the Gauss-Newton matrix needs second derivatives of the loss, which torch does not have: "
    "{error}. Write the loss with other operations, use curvature='empirical-fisher', which needs "
    "none, or " + OWN_PRODUCTS
)
OF_THE_FUNCTION = (
    "curvature products differentiate the function's gradient, which torch cannot do: {error}. "
    "Compute the same with other operations (in an autograd.Function: a backward pass of torch "
    "operations, without once_differentiable), " + OWN_PRODUCTS
)


class MissingDerivative(RuntimeError):
    """An error of torch that has been explained."""


@contextmanager
def explained(message: str) -> Iterator[None]:
    """Raise an error of torch about a missing derivative with `message`, which says what to do."""
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        first = str(error).split("\n")[0].rstrip(".")
        if isinstance(error, MissingDerivative) or not any(sign in first for sign in _SIGNS):
            raise
        raise MissingDerivative(message.format(error=first)) from error


def refuse_once_differentiable(g: Tensor) -> None:
    """Refuse a gradient whose graph has a node of once_differentiable.

    Torch raises there only where a derivative passes through that node: asked for that in the
    variables alone, it leaves the node out, and the result is wrong.
    """
    waiting, seen = [g.grad_fn], {g.grad_fn}
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        if node.name() == "torch::autograd::Error":
            raise RuntimeError("differentiate twice: a backward pass is once_differentiable")
        for child, _ in node.next_functions:
            if child not in seen:
                seen.add(child)
                waiting.append(child)


# Whether a gradient of torch is that of the values, and what to look for where it is not


RETAINED = (
    "A derivative within it needs create_graph=True: torch.autograd.grad(u.sum(), x, "
    "create_graph=True), not retain_graph=True, nor backward(retain_graph=True) and x.grad: these "
    "leave a part of the gradient out, and torch does not tell. Look for .detach() and .data, too"
)


def contradicts(value_at: Callable[[Tensor], float], x: Tensor, value: float, g: Tensor) -> bool:
    """Whether values beside x contradict `g`: one is computed where they agree."""
    return slope_ratio(value_at, x, value, g, Space(x)) is not None
