"""``from_torch``, as the user sees it; torch is imported when it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ksdmin._adapters.library_import import adapter

if TYPE_CHECKING:
    from ksdmin._adapters.blocks import BlockProblem
    from ksdmin._adapters.torch.plain_function import TorchFunctionProblem
    from ksdmin._adapters.torch.problem import TorchProblem


def from_torch(
    model: Any,
    loss: Any = None,
    data: Any = None,
    *,
    residuals: Any = None,
    x0: Any = None,
    subsets: Any = None,
    curvature: str | Callable[..., Any] | None = None,
    l2: float | Mapping[str, float] = 0.0,
    precond: Any = "fisher",
    params: Iterable[Any] | None = None,
    chunk_size: int | None = None,
    memory_budget: float | None = None,
    precision: str = "highest",
    graphs: bool | None = None,
    rng: Any = 0,
) -> TorchProblem | TorchFunctionProblem | BlockProblem:
    """Make a torch model, or a plain function, into a problem that ``minimize`` takes.

    Parameters
    ----------
    model : nn.Module or callable
        The model. Its parameters that require a gradient become one flat vector; the module
        itself is changed by ``problem.load(x)`` only.
        Without `loss` and `data`, but with `x0`: a plain function ``fun(theta) -> scalar tensor``,
        or with `subsets` ``fun(theta, idx)``, the mean over the samples `idx`.
    loss : module or callable
        A torch loss module, or a callable (outputs, targets) -> one loss per sample. A module's
        mean (or sum) over the elements of a sample is kept; over samples it is the mean.
        GaussianNLLLoss takes targets (y, variance).
    data : (inputs, targets) or Dataset
        Tensors or numpy arrays (also memory-mapped ones); either may be a tuple of several, where
        the model or the loss takes such. They are converted to the model's device, and to its
        dtype if they are floating-point numbers, chunk by chunk.
    residuals : list of (r, data) or (r, data, weight), optional
        In place of `loss` and `data`: blocks of residuals whose squares are summed, as for
        physics-informed nets. ``r(model, batch)`` returns one row per sample; `data` are an array,
        or a tuple or dict of arrays, with one row per sample, and `batch` are some of their rows.
        ``(r, None)``: ``r(model)`` returns residuals that are always taken whole, as one sample.
        The objective is the sum of ``weight * mean(r**2)`` over the blocks (and the penalty of
        `l2`). Each block is sampled by itself, and its term is the mean over its own samples.
    x0 : Tensor, nn.Module, or nested dict, list or tuple of tensors, optional
        Where a plain function starts; its argument `theta` has the same form. An iterator such as
        ``net.parameters()`` becomes a list. For a module, the function gets the module itself,
        whose parameters are those of the point for the time of the call. ``problem.load(x)``
        writes into these tensors.
    subsets : int, Subsets, callable or iterable, optional
        The samples that a plain function ``fun(theta, idx)`` takes its mean over: see
        :class:`Subsets`. A model's samples are its data.
    curvature : {"gauss-newton", "hessian", "fisher", "empirical-fisher"} or callable, optional
        Which matrix the products multiply by; or (x, idx) -> product, matrix or LinearOperator,
        of the mean loss: l2 is added. By default "gauss-newton"; for a plain function it is the
        Hessian.
    l2 : float or mapping, optional
        The objective is ``mean loss + (l2 / 2) |x|^2``; a mapping gives it by the names of
        parameters or modules (by the keys of `x0`, joined by dots), 0 for the others.
    precond : "fisher", None, array or callable, optional
        The diagonal preconditioner: that of the empirical Fisher matrix (none for a plain
        function), none, or your own as a flat vector, or (x, idx) -> one. See the options `floor`
        and `diagonal_power`.
    params : iterable, optional
        The parameters to vary: names of parameters or modules, or Parameters; by default all that
        require a gradient.
    chunk_size : int, optional
        How many samples are computed at once; by default as many as fit `memory_budget`.
    memory_budget : float, optional
        Bytes for activations: a quarter of the memory that is free, where not given.
    precision : {"highest", "high", "bfloat16"}
        Matrix products of float32 parameters: in float32, with TF32, or in bfloat16 (autocast).
        A run of "ksd" turns to finer ones when rounding hides the gain of its steps: from bfloat16
        to TF32, then to float32 for values and gradients, but not for the curvature.
    graphs : bool, optional
        Whether to use CUDA graphs; by default on CUDA. A model that draws random numbers
        (dropout) runs without, and so does a plain function.
    rng : None, int, Generator, ..., optional
        The seed of the labels that "fisher" draws, and of dropout masks. Both are always the
        same for the same set of samples.

    Returns
    -------
    TorchProblem, TorchFunctionProblem or BlockProblem
        With ``x0``, ``load(x)``, the verbs of :class:`Problem`, and numpy callables ``fun``,
        ``jac``, ``hessp``; that of a plain function also with ``unflatten(x)``, a flat vector in
        the form of `x0` (for a module {name: tensor}).

    Notes
    -----
    A plain function may differentiate itself (``torch.autograd.grad`` with ``create_graph=True``,
    ``torch.func``), as physics-informed losses do. It must be deterministic, and its value must
    carry a graph from `theta`. It runs eagerly: what it reads beside `theta` may change from run
    to run, which a CUDA graph would not see. `params`, `chunk_size` and `memory_budget` are for
    models only. A module whose forward pass returns the loss is a plain function, too:
    ``from_torch(lambda module: module(batch), x0=net)``.

    Memory on CUDA, of multi-layer perceptrons: the data that are there, and about ::

        s n (K + memory + 40) + a (3.4 chunk + 4.2 |B| + 2.5 |C|)   bytes

    with n parameters of s bytes, K = krylov_dim and a = ``problem.bytes_per_sample``. (Ten measured
    runs of the MNIST auto-encoder differed from it by at most 5%.) Sets B and C beyond
    `memory_budget`, and A beyond `chunk_size`, count as one chunk.

    The diagonal for the preconditioner comes with the gradient where all parameters are those of
    Linear layers that see each sample once. Those of convolutions, recurrent layers, embeddings
    and the like take the gradient of every sample, by vmap, which is expensive: then it is
    estimated from 256 samples. A model that fails under vmap has no diagonal.

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

    A plain function, here of a dict of tensors:

    >>> start = {"a": torch.zeros(2, dtype=torch.float64), "b": torch.ones(1).double()}
    >>> def fun(theta):
    ...     return ((theta["a"] - 1) ** 4).sum() + (theta["a"] ** 2).sum() + theta["b"].cosh().sum()
    >>> problem = ksdmin.from_torch(fun, x0=start)
    >>> res = ksdmin.minimize(problem)
    >>> problem.unflatten(res.x)["a"].numpy().round(4).tolist()
    [0.4102, 0.4102]

    Two blocks of residuals, a fit and a condition at one point:

    >>> def fit(net, batch):
    ...     return net(batch[0]) - batch[1]
    >>> def at_zero(net, x):
    ...     return net(x) - 1
    >>> blocks = [(fit, (X, 3 * X + 2)), (at_zero, torch.zeros(1, 1).double(), 1e6)]
    >>> problem = ksdmin.from_torch(net, residuals=blocks)
    >>> problem.load(ksdmin.minimize(problem, rng=0).x)
    >>> round(net.weight.item(), 3), round(net.bias.item(), 3)
    (3.0, 1.0)
    """
    problem: TorchProblem | TorchFunctionProblem | BlockProblem = adapter("torch").build(
        model,
        loss,
        data,
        residuals=residuals,
        x0=x0,
        subsets=subsets,
        curvature=curvature,
        l2=l2,
        precond=precond,
        params=params,
        chunk_size=chunk_size,
        memory_budget=memory_budget,
        precision=precision,
        graphs=graphs,
        rng=rng,
    )
    return problem
