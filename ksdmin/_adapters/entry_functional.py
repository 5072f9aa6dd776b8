"""``from_autograd`` and ``from_jax``, as the user sees them; the call imports the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ksdmin._adapters.arguments import Arguments, adapter

if TYPE_CHECKING:
    from ksdmin._adapters.blocks import BlockProblem
    from ksdmin._adapters.functional.problem import FunctionalProblem


def from_autograd(
    model: Callable[..., Any] | None = None,
    loss: str | Callable[..., Any] | None = None,
    data: Any = None,
    *,
    residuals: Any = None,
    params: Any = None,
    x0: Any = None,
    subsets: Any = None,
    curvature: str | Callable[..., Any] | None = None,
    l2: Any = 0.0,
    precond: Any = "diagonal",
    chunk_size: int | None = None,
    memory_budget: float | None = None,
    rng: Any = 0,
    sample_weight: Any = None,
) -> FunctionalProblem | BlockProblem:
    """Make a function written for HIPS autograd into a problem that ``minimize`` takes.

    Parameters
    ----------
    model : callable
        ``model(params, inputs) -> outputs``, one row per sample, written with ``autograd.numpy``.
        Without `loss` and `data`: a plain function, ``model(x)`` or ``model(x, idx)``.
    loss : str or callable
        "squared-error", "softmax-cross-entropy", "binary-cross-entropy" (of logits) or "poisson"
        (of log rates), each a sum over the outputs of a sample; or a callable
        (outputs, targets) -> one loss per sample, differentiated in the outputs.
    data : (inputs, targets)
        Numpy arrays with one row per sample, or nested tuples, lists and dictionaries of them.
    residuals : list of (r, data) or (r, data, weight), optional
        In place of `model`, `loss` and `data`: blocks of residuals whose squares are summed.
        ``r(params, batch)`` returns one row per sample of the tree of arrays `data`;
        ``(r, None)``: ``r(params)`` returns residuals that are always taken whole. The objective
        is the sum of ``weight * mean(r**2)`` over the blocks, and the penalty of `l2`.
    params : tree of arrays
        The initial parameters, all float32 or all float64. Other leaves (whole numbers, functions,
        None) are kept as they are.
    x0 : array or tree of arrays
        Where a plain function starts. A list of numbers is a vector.
    subsets : int, Subsets, callable or iterable, optional
        The samples that a plain function ``model(x, idx)`` takes its mean over: see
        :class:`Subsets`. A model's samples are its data.
    curvature : {"gauss-newton", "hessian", "fisher", "empirical-fisher"} or callable, optional
        Which matrix the products multiply by; or (x, idx) -> product or matrix, of the mean loss:
        l2 is added. By default "gauss-newton"; for a plain function it is the Hessian.
    l2 : float or tree of floats, optional
        The objective is ``mean loss + (l2 / 2) |x|^2``; or one number each for parts of `params`, 0
        where left out.
    precond : "diagonal", None, array or callable, optional
        The diagonal preconditioner: that of the empirical Fisher matrix (none for a plain
        function), none, or your own as a flat vector, or (x, idx) -> one.
    chunk_size : int, optional
        How many samples are computed at once; by default as many as fit `memory_budget`.
    memory_budget : float, optional
        Bytes for activations and gradients of single samples: 1 GiB, on every machine. A larger
        set's forward pass is made again for every product.
    rng : None, int, Generator, ..., optional
        The seed of the labels that "fisher" draws.
    sample_weight : vector, optional
        A weight for each sample, as in scikit-learn: not negative, not all zero. The objective is
        sum(w l) / sum(w); on some of the samples it is the mean of w l, with w divided by the mean
        over all of them.

    Returns
    -------
    FunctionalProblem or BlockProblem
        With ``x0``, ``unflatten(x)``, ``index(path)`` (where a leaf such as "layers.0.w", or all
        beneath a path, is in the flat vector), the verbs of :class:`Problem`, and numpy callables
        ``fun``, ``jac``, ``hessp``.

    Notes
    -----
    The diagonal for the preconditioner comes with the gradient where parameters only multiply
    (``inputs @ W``), scale or shift one vector per sample. Other models are differentiated sample
    by sample for it, which is slow: then it is estimated from 256 samples. ``precond=None`` does
    without it.

    Examples
    --------
    >>> import autograd.numpy as np, ksdmin
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> def line(params, inputs):
    ...     return inputs @ params["slope"] + params["shift"]
    >>> start = {"slope": np.zeros((1, 1)), "shift": np.zeros(1)}
    >>> problem = ksdmin.from_autograd(line, "squared-error", (X, 3 * X + 1), params=start)
    >>> res = ksdmin.minimize(problem, rng=0)
    >>> found = problem.unflatten(res.x)
    >>> found["slope"].round(4).tolist(), found["shift"].round(4).tolist()
    ([[3.0]], [1.0])

    A plain function:

    >>> def fun(x):
    ...     return np.sum((x - 1) ** 4) + np.sum(x**2)
    >>> res = ksdmin.minimize(ksdmin.from_autograd(fun, x0=np.zeros(3)))
    >>> res.x.round(4).tolist()
    [0.4102, 0.4102, 0.4102]
    """
    problem: FunctionalProblem | BlockProblem = adapter("autograd").build(Arguments(**locals()))
    return problem


def from_jax(
    model: Callable[..., Any] | None = None,
    loss: str | Callable[..., Any] | None = None,
    data: Any = None,
    *,
    residuals: Any = None,
    params: Any = None,
    x0: Any = None,
    subsets: Any = None,
    curvature: str | Callable[..., Any] | None = None,
    l2: Any = 0.0,
    precond: Any = "diagonal",
    chunk_size: int | None = None,
    memory_budget: float | None = None,
    precision: str = "highest",
    rng: Any = 0,
    sample_weight: Any = None,
) -> FunctionalProblem | BlockProblem:
    """Make a jax function into a problem that ``minimize`` takes: compiled, on its device.

    Parameters
    ----------
    model : callable
        ``model(params, inputs) -> outputs``, one row per sample, that ``jax.jit`` can compile.
        Without `loss` and `data`: a plain function, ``model(x)`` or ``model(x, idx)``.
    loss : str or callable
        "squared-error", "softmax-cross-entropy", "binary-cross-entropy" (of logits) or "poisson"
        (of log rates), each a sum over the outputs of a sample; or a callable
        (outputs, targets) -> one loss per sample, differentiated in the outputs.
    data : (inputs, targets)
        Arrays with one row per sample, or nested tuples, lists and dictionaries of them. Numpy
        arrays are put on the device of `params`, or where they exceed `memory_budget` brought there
        chunk by chunk.
    residuals : list of (r, data) or (r, data, weight), optional
        In place of `model`, `loss` and `data`: blocks of residuals whose squares are summed.
        ``r(params, batch)`` returns one row per sample of the tree of arrays `data`;
        ``(r, None)``: ``r(params)`` returns residuals that are always taken whole. The objective
        is the sum of ``weight * mean(r**2)`` over the blocks, and the penalty of `l2`.
    params : tree of arrays
        The initial parameters, all float32 or all float64: any tree of jax, also a module of
        equinox, or the variables of flax. Other leaves (whole numbers, random keys, functions) are
        kept as they are; ``unflatten`` puts them back.
    x0 : array or tree of arrays
        Where a plain function starts. A list of numbers is a vector.
    subsets : int, Subsets, callable or iterable, optional
        The samples that a plain function ``model(x, idx)`` takes its mean over: see
        :class:`Subsets`. A model's samples are its data. There must be so many: jax itself takes
        the last row for any beyond it, and says nothing.
    curvature : {"gauss-newton", "hessian", "fisher", "empirical-fisher"} or callable, optional
        Which matrix the products multiply by; or (x, idx) -> product or matrix, of the mean loss:
        l2 is added. By default "gauss-newton"; for a plain function it is the Hessian.
    l2 : float or tree of floats, optional
        The objective is ``mean loss + (l2 / 2) |x|^2``; or one number each for parts of `params`, 0
        where left out.
    precond : "diagonal", None, array or callable, optional
        The diagonal preconditioner: that of the empirical Fisher matrix (none for a plain
        function), none, or your own as a flat vector, or (x, idx) -> one.
    chunk_size : int, optional
        How many samples are computed at once; by default as many as fit `memory_budget`.
    memory_budget : float, optional
        Bytes for activations and gradients of single samples: 1 GiB, on every machine. A larger
        set's forward pass is made again for every product.
    precision : {"highest", "high"}
        Matrix products of float32 parameters: in float32, or with TF32 where the device has it
        (for values and gradients only until rounding hides the gain of a run's steps).
    rng : None, int, Generator, ..., optional
        The seed of the labels that "fisher" draws.
    sample_weight : vector, optional
        A weight for each sample, as in scikit-learn: not negative, not all zero. The objective is
        sum(w l) / sum(w); on some of the samples it is the mean of w l, with w divided by the mean
        over all of them.

    Returns
    -------
    FunctionalProblem or BlockProblem
        With ``x0``, ``unflatten(x)``, ``index(path)`` (where a leaf such as "layers.0.w", or all
        beneath a path, is in the flat vector), the verbs of :class:`Problem`, and numpy callables
        ``fun``, ``jac``, ``hessp``.

    Notes
    -----
    About ten functions are compiled, each once: sets of all sizes are padded to chunks of one
    length, and a problem made again of the same model, as from another seed, compiles nothing
    (large data have one more length, that of all samples; a plain function of samples is compiled
    for each size of a set). On the CPU the algebra of a run is numpy's. Float64 needs jax's own
    setting, ``jax.config.update("jax_enable_x64", True)``, which is never changed here.

    Examples
    --------
    >>> import jax.numpy as jnp, ksdmin
    >>> X = jnp.linspace(-1, 1, 50)[:, None]
    >>> def line(params, inputs):
    ...     return inputs @ params["slope"] + params["shift"]
    >>> start = {"slope": jnp.zeros((1, 1)), "shift": jnp.zeros(1)}
    >>> problem = ksdmin.from_jax(line, "squared-error", (X, 3 * X + 1), params=start)
    >>> res = ksdmin.minimize(problem, rng=0)
    >>> found = problem.unflatten(res.x)
    >>> round(float(found["slope"][0, 0]), 4), round(float(found["shift"][0]), 4)
    (3.0, 1.0)
    """
    problem: FunctionalProblem | BlockProblem = adapter("jax").build(Arguments(**locals()))
    return problem
