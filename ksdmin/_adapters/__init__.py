"""Adapters: models of an autodiff library as problems over one flat vector.

The libraries are imported when an adapter is called, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ksdmin._adapters.torch import TorchProblem


def from_torch(
    model: Any,
    loss: Any,
    data: Any,
    *,
    curvature: str | Callable[..., Any] = "gauss-newton",
    l2: float | Mapping[str, float] = 0.0,
    params: Iterable[str] | None = None,
    chunk_size: int | None = None,
    memory_budget: float | None = None,
    precision: str = "highest",
    graphs: bool | None = None,
    rng: int = 0,
) -> TorchProblem:
    """Make a torch model into a problem that ``minimize`` takes.

    Parameters
    ----------
    model : nn.Module
        The model. Its parameters that require a gradient become one flat vector; the module
        itself is changed by ``problem.load(x)`` only.
    loss : module or callable
        A torch loss module, or a callable (outputs, targets) -> one loss a sample. A module's
        mean (or sum) over the elements of a sample is kept; over samples it is the mean.
    data : (inputs, targets) or Dataset
        Tensors or numpy arrays; where they are not on the model's device they are brought there
        chunk by chunk.
    curvature : {"gauss-newton", "hessian", "fisher", "empirical-fisher"} or callable
        Which matrix the products multiply by; or (x, idx) -> product or LinearOperator.
    l2 : float or mapping, optional
        The mean loss + (l2 / 2) |x|^2; a mapping gives it by parameter name, 0 for the others.
    params : iterable of str, optional
        The names of the parameters to vary; by default all that require a gradient.
    chunk_size : int, optional
        How many samples are computed at once; by default as many as fit `memory_budget`.
    memory_budget : float, optional
        Bytes for activations: a quarter of the memory that is free, where not given.
    precision : {"highest", "high", "bfloat16"}
        Matrix products of float32 parameters: in float32, with TF32, or in bfloat16 (autocast).
    graphs : bool, optional
        CUDA graphs; by default on CUDA where the model has no randomness of its own.
    rng : int, optional
        The seed of the labels that "fisher" draws, and of dropout masks.

    Returns
    -------
    TorchProblem
        With ``x0``, ``load(x)``, the verbs, and numpy callables ``fun``, ``jac``, ``hessp``.

    Examples
    --------
    >>> import torch, ksdmin
    >>> X = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    >>> net = torch.nn.Linear(1, 1).double()
    >>> problem = ksdmin.from_torch(net, torch.nn.MSELoss(), (X, 3 * X + 1))
    >>> res = ksdmin.minimize(problem, subsets=ksdmin.Subsets(50, 1.0, 1.0, 1.0, disjoint=False))
    >>> problem.load(res.x)
    >>> round(net.weight.item(), 4), round(net.bias.item(), 4)
    (3.0, 1.0)
    """
    try:
        from ksdmin._adapters import torch as adapter
    except ModuleNotFoundError as error:
        raise ImportError("ksdmin.from_torch needs torch: pip install 'ksdmin[torch]'") from error
    return adapter.build(
        model,
        loss,
        data,
        curvature=curvature,
        l2=l2,
        params=params,
        chunk_size=chunk_size,
        memory_budget=memory_budget,
        precision=precision,
        graphs=graphs,
        rng=rng,
    )
