"""From the arguments of ``from_autograd`` and ``from_jax`` to a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from ksdmin._adapters.arguments import (
    Arguments,
    as_blocks,
    as_precond,
    check_block_curvature,
    check_curvature_of_function,
    check_deterministic,
    noting_block,
)
from ksdmin._adapters.blocks import BlockProblem, Term
from ksdmin._adapters.curvature import SampleLoss, check_provider
from ksdmin._adapters.functional.data import Samples
from ksdmin._adapters.functional.library import Library
from ksdmin._adapters.functional.losses import as_sample_loss
from ksdmin._adapters.functional.plain_function import PlainFunction
from ksdmin._adapters.functional.problem import FunctionalProblem
from ksdmin._adapters.functional.residuals import as_data, as_model, squared_residuals
from ksdmin._adapters.functional.sample_sums import SampleSums
from ksdmin._adapters.names import Names
from ksdmin._adapters.seeds import seed_from_rng
from ksdmin._adapters.trees import like
from ksdmin._problem.arrays import Array
from ksdmin._problem.subsets import WHOLE, Subsets, as_subsets
from ksdmin._problem.user_values import as_vector

# Bytes: the same on every machine, so that a run has the same chunks, and repeats bit for bit.
DEFAULT_MEMORY_BUDGET = 2.0**30
# Relative difference between the mean loss of two samples together and apart: less is rounding,
# also with TF32.
MAX_BATCH_DIFFERENCE = 1e-3


def build(library: Library, asked: Arguments) -> FunctionalProblem | BlockProblem:
    """The problem of ``from_autograd`` or ``from_jax``, which document the arguments."""
    check_provider(asked.curvature)
    precond = as_precond(asked.precond, "diagonal")
    budget = asked.memory_budget or DEFAULT_MEMORY_BUDGET
    asked = replace(asked, precond=precond, memory_budget=budget)
    if asked.residuals is not None:
        return _blocks(library, asked)
    if not callable(asked.model):
        raise TypeError(f"model: expected a function, not {type(asked.model).__name__}")
    if asked.loss is None and asked.data is None:
        asked.refuse("a model with loss and data", "params", "chunk_size", "sample_weight")
        asked.require("a function without loss and data", "x0")
        return _plain_function(library, asked)
    asked.refuse("a function without loss and data", "x0", "subsets")
    asked.require("a model", "params", "loss", "data")
    return _of_samples(library, asked, partial(_sample_loss, library, asked.loss, asked.curvature))


def _plain_function(library: Library, asked: Arguments) -> FunctionalProblem:
    """The problem of a function."""
    x0, flat, unflatten = _flattened(library, _numbers_as_vector(asked.x0))
    x = as_vector(flat)
    sets = None if asked.subsets is None else as_subsets(asked.subsets)
    check_curvature_of_function(asked.curvature)
    terms = PlainFunction(library, _on_vectors(asked.model, unflatten), sets is not None)
    return _problem(library, terms, x, x0, unflatten, sets, asked)


def _of_samples(
    library: Library, asked: Arguments, as_loss: Callable[[], SampleLoss]
) -> FunctionalProblem:
    """The problem of a model and its samples."""
    params, flat, unflatten = _flattened(library, asked.params)
    x, budget, curvature = as_vector(flat), asked.memory_budget, asked.curvature
    assert budget is not None
    seed = seed_from_rng(asked.rng)
    samples = Samples(asked.data, library, x, budget, asked.sample_weight)
    provider = curvature if isinstance(curvature, str) else "gauss-newton"
    on_vectors = _on_vectors(asked.model, unflatten)
    terms = SampleSums(library, on_vectors, as_loss(), samples, provider, seed)
    terms.fit(x, asked.chunk_size, budget)
    library = terms.library  # as it is for so many samples
    problem = _problem(library, terms, x, params, unflatten, Subsets(samples.n), asked)
    _check_samples(problem)
    return problem


def _blocks(library: Library, asked: Arguments) -> BlockProblem:
    """The sum of blocks of squared residuals."""
    instead = "a model or a plain function, not with residuals="
    asked.refuse(instead, "model", "loss", "data", "x0", "subsets", "sample_weight")
    asked.require("a list of residuals", "params")
    blocks = as_blocks(asked.residuals)
    check_block_curvature(asked.curvature)
    assert asked.memory_budget is not None
    of_block = replace(
        asked,
        l2=0.0,
        precond=asked.precond if isinstance(asked.precond, str) else None,
        memory_budget=asked.memory_budget / len(blocks),
        rng=np.random.default_rng(asked.rng),  # each block draws labels of its own
    )
    squares, terms = partial(squared_residuals, library.xp), []
    for number, block in enumerate(blocks):
        with noting_block(number):
            own = replace(of_block, model=as_model(block), data=as_data(block))
            problem = _of_samples(library, own, squares)
        terms.append(Term(problem, block.weight, problem.elements))
    penalty = _penalty(asked.l2, asked.params, library, problem.x0)
    return BlockProblem(terms, penalty, asked.precond)


def _problem(
    library: Library,
    sums: SampleSums | PlainFunction,
    x: Array,
    tree: Any,
    unflatten: Callable[[Array], Any],
    sets: Subsets | None,
    asked: Arguments,
) -> FunctionalProblem:
    penalty, names = _penalty(asked.l2, tree, library, x), Names(library.paths(tree))
    chosen = sets, asked.curvature, penalty, asked.precond, names
    return FunctionalProblem(library, sums, x, unflatten, *chosen)


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
        pairs = zip(l2, tree, strict=True)
        return like(tree, {i: _broadcast(*pair, library) for i, pair in enumerate(pairs)})
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
