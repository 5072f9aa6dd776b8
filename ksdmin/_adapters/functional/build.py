"""From the arguments of ``from_autograd`` and ``from_jax`` to a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from ksdmin._adapters.arguments import (
    Block,
    as_blocks,
    as_precond,
    check_block_curvature,
    check_curvature_of_function,
    check_deterministic,
    noting_block,
    refuse,
)
from ksdmin._adapters.blocks import BlockProblem, Term
from ksdmin._adapters.curvature import SampleLoss, check_provider
from ksdmin._adapters.functional.data import Samples, like
from ksdmin._adapters.functional.library import Library
from ksdmin._adapters.functional.losses import as_sample_loss
from ksdmin._adapters.functional.plain_function import PlainFunction
from ksdmin._adapters.functional.problem import FunctionalProblem
from ksdmin._adapters.functional.residuals import as_data, as_model, squared_residuals
from ksdmin._adapters.functional.sample_sums import SampleSums
from ksdmin._adapters.names import Names
from ksdmin._adapters.seeds import seed_from_rng
from ksdmin._problem.arrays import Array
from ksdmin._problem.subsets import WHOLE, Subsets, as_subsets
from ksdmin._problem.user_values import as_vector

# Bytes: the same on every machine, so that a run has the same chunks, and repeats bit for bit.
DEFAULT_MEMORY_BUDGET = 2.0**30
# Relative difference between the mean loss of two samples together and apart: less is rounding,
# also with TF32.
MAX_BATCH_DIFFERENCE = 1e-3


def build(
    library: Library,
    model: Any,
    loss: Any,
    data: Any,
    *,
    residuals: Any,
    params: Any,
    x0: Any,
    subsets: Any,
    curvature: Any,
    l2: Any,
    precond: Any,
    chunk_size: int | None,
    memory_budget: float | None,
    rng: Any,
    sample_weight: Any,
) -> FunctionalProblem | BlockProblem:
    """The problem of ``from_autograd`` or ``from_jax``, which document the arguments."""
    check_provider(curvature)
    budget = memory_budget or DEFAULT_MEMORY_BUDGET
    precond = as_precond(precond, "diagonal")
    settings = {"curvature": curvature, "l2": l2, "precond": precond, "chunk_size": chunk_size}
    if residuals is not None:
        given = {"model": model, "loss": loss, "data": data, "x0": x0, "subsets": subsets}
        given |= {"sample_weight": sample_weight}
        refuse("a model or a plain function, not with residuals=", **given)
        _require("a list of residuals", params=params)
        blocks = as_blocks(residuals)
        return _blocks(library, blocks, params, budget=budget, rng=rng, **settings)
    a_models = {"params": params, "chunk_size": chunk_size, "sample_weight": sample_weight}
    if not _is_plain(model, loss, data, x0, subsets, a_models):
        as_loss, seed = partial(_sample_loss, library, loss, curvature), seed_from_rng(rng)
        settings |= {"sample_weight": sample_weight, "budget": budget, "seed": seed}
        return _of_samples(library, model, as_loss, data, params, **settings)
    x0, flat, unflatten = _flattened(library, _numbers_as_vector(x0))
    x = as_vector(flat)
    sets = None if subsets is None else as_subsets(subsets)
    terms = _plain_function(library, _on_vectors(model, unflatten), sets, curvature)
    penalty = _penalty(l2, x0, library, x)
    names = Names(library.paths(x0))
    return FunctionalProblem(library, terms, x, unflatten, sets, curvature, penalty, precond, names)


def _of_samples(
    library: Library,
    model: Callable[..., Any],
    as_loss: Callable[[], SampleLoss],
    data: Any,
    params: Any,
    *,
    curvature: Any,
    l2: Any,
    precond: Any,
    chunk_size: int | None,
    budget: float,
    seed: int,
    sample_weight: Any = None,
) -> FunctionalProblem:
    """The problem of a model and its samples."""
    params, flat, unflatten = _flattened(library, params)
    x = as_vector(flat)
    samples = Samples(data, library, x, budget, sample_weight)
    provider = curvature if isinstance(curvature, str) else "gauss-newton"
    on_vectors = _on_vectors(model, unflatten)
    terms = SampleSums(library, on_vectors, as_loss(), samples, provider, seed)
    terms.fit(x, chunk_size, budget)
    library = terms.library  # as it is for so many samples
    sets, penalty = Subsets(samples.n), _penalty(l2, params, library, x)
    names = Names(library.paths(params))
    problem = FunctionalProblem(
        library, terms, x, unflatten, sets, curvature, penalty, precond, names
    )
    _check_samples(problem)
    return problem


def _blocks(
    library: Library,
    blocks: list[Block],
    params: Any,
    *,
    curvature: Any,
    l2: Any,
    precond: Any,
    chunk_size: int | None,
    budget: float,
    rng: Any,
) -> BlockProblem:
    """The sum of blocks of squared residuals."""
    check_block_curvature(curvature)
    generator = np.random.default_rng(rng)  # each block draws labels of its own
    terms = []
    for number, block in enumerate(blocks):
        with noting_block(number):
            model, data = as_model(block), as_data(block)
            problem = _of_samples(
                library,
                model,
                partial(squared_residuals, library.xp),
                data,
                params,
                curvature=curvature,
                l2=0.0,
                precond=precond if isinstance(precond, str) else None,
                chunk_size=chunk_size,
                budget=budget / len(blocks),
                seed=seed_from_rng(generator),
            )
        terms.append(Term(problem, block.weight, problem.elements))
    penalty = _penalty(l2, params, library, problem.x0)
    return BlockProblem(terms, penalty, precond)


def _numbers_as_vector(x0: Any) -> Any:
    """`x0`; a list or tuple of nothing but numbers is a vector, as in SciPy, and not a tree."""
    row = isinstance(x0, (list, tuple)) and not hasattr(x0, "_fields")
    numbers = row and len(x0) > 0 and all(isinstance(entry, Real) for entry in x0)
    return np.asarray(x0, dtype=float) if numbers else x0


def _flattened(library: Library, tree: Any) -> tuple[Any, Array, Callable[[Array], Any]]:
    """The tree, its vector, and the way back."""
    flat, unflatten = library.flatten(tree)
    if flat.shape[0] == 0:  # whole numbers are as good where there is nothing else
        tree = library.as_floats(tree)
        flat, unflatten = library.flatten(tree)
    return tree, flat, unflatten


def _on_vectors(model: Callable[..., Any], unflatten: Callable[[Array], Any]) -> Any:
    def on_vectors(x: Array, *more: Any) -> Any:
        return model(unflatten(x), *more)

    return on_vectors


def _is_plain(
    model: Any, loss: Any, data: Any, x0: Any, subsets: Any, a_models: dict[str, Any]
) -> bool:
    """Whether the arguments are those of a plain function, or else of a model with samples."""
    if not callable(model):
        raise TypeError(f"model: expected a function, not {type(model).__name__}")
    if loss is None and data is None:
        refuse("a model with loss and data", **a_models)
        _require("a function without loss and data", x0=x0)
        return True
    refuse("a function without loss and data", x0=x0, subsets=subsets)
    _require("a model", params=a_models["params"], loss=loss, data=data)
    return False


def _require(by: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is None:
            raise TypeError(f"{name}= is missing: {by} needs {' and '.join(arguments)}")


def _plain_function(
    library: Library, function: Callable[..., Any], sets: Subsets | None, curvature: Any
) -> PlainFunction:
    check_curvature_of_function(curvature)
    return PlainFunction(library, function, sets is not None)


def _sample_loss(library: Library, loss: Any, curvature: Any) -> SampleLoss:
    sample_loss = as_sample_loss(loss, library.xp, library.logsumexp)
    if curvature == "fisher" and sample_loss.draw is None:
        raise ValueError(
            "curvature='fisher' draws labels from the model's likelihood, which a callable loss "
            "does not define: use a loss by name, 'gauss-newton' or 'empirical-fisher'"
        )
    return sample_loss


def _penalty(l2: Any, tree: Any, library: Library, x: Array) -> float | Array | None:
    """The weight of each entry's square: None, one number, or one number per entry."""
    if isinstance(l2, Real):
        return float(l2) or None
    weights, _ = library.flatten(_broadcast(l2, tree, library))
    return library.xp.asarray(weights, dtype=x.dtype)


def _broadcast(l2: Any, tree: Any, library: Library) -> Any:
    """`l2`, the upper part of a tree like `tree`, with its numbers at every entry below."""
    if isinstance(l2, Real):
        flat, unflatten = library.flatten(tree)
        return unflatten(library.xp.full(flat.shape, float(l2), dtype=flat.dtype))
    if isinstance(l2, Mapping) and isinstance(tree, Mapping) and set(l2) <= set(tree):
        made = {key: _broadcast(l2.get(key, 0.0), part, library) for key, part in tree.items()}
        return made if type(tree) is dict else type(tree)(made)  # type: ignore[call-arg]
    sequences = isinstance(l2, (tuple, list)) and isinstance(tree, (tuple, list))
    if sequences and len(l2) == len(tree):
        return like(tree, [_broadcast(*pair, library) for pair in zip(l2, tree, strict=True)])
    raise ValueError(
        "l2: expected a number, or numbers in the order and under the names of params (0 for a "
        "name left out)"
    )


def _check_samples(problem: FunctionalProblem) -> None:
    """Refuse a model whose loss is no sum over samples, or changes from call to call."""
    if problem.subsets is None:
        return
    x0, few = np.asarray(problem.x0), WHOLE if problem.subsets.n == 1 else np.array([0, 1])
    both, again = (problem.value(x0, few) for _ in range(2))
    check_deterministic("the model", both, again, MAX_BATCH_DIFFERENCE)
    if problem.subsets.n == 1:
        return
    apart = sum(problem.value(x0, np.array([i])) for i in range(2)) / 2
    if abs(both - apart) > MAX_BATCH_DIFFERENCE * abs(both):
        raise ValueError(
            f"the mean loss of two samples is {both!r} together and {apart!r} apart: the loss of "
            "a sample must depend on no other sample"
        )
