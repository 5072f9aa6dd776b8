"""Functions of autograd and jax as problems over one flat vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any, Never

import numpy as np

from ksdmin._adapters.arguments import (
    Arguments,
    as_blocks,
    as_precond,
    check_block_curvature,
    check_curvature_of_function,
    check_deterministic,
    from_frame,
    noting_block,
)
from ksdmin._adapters.blocks import BlockProblem, Term
from ksdmin._adapters.curvature import Product, SampleLoss, check_provider
from ksdmin._adapters.flat_problem import seed_from_rng, warn_if_constant
from ksdmin._adapters.functional.data import Samples
from ksdmin._adapters.functional.kernels import Kernels
from ksdmin._adapters.functional.library import Library
from ksdmin._adapters.functional.losses import (
    as_data,
    as_model,
    as_sample_loss,
    check_targets,
    squared_residuals,
)
from ksdmin._adapters.functional.sums import PlainFunction, SampleSums
from ksdmin._adapters.model_problem import Means, ModelProblem
from ksdmin._adapters.names import Names
from ksdmin._adapters.trees import like
from ksdmin._problem.arrays import Array
from ksdmin._problem.hosted import is_hosted
from ksdmin._problem.protocol import Traits
from ksdmin._problem.subsets import WHOLE, Subsets, as_subsets
from ksdmin._problem.user_values import as_generator, as_vector


class FunctionalProblem(ModelProblem):
    """A model, or a function, as a problem; made by :func:`from_autograd` or :func:`from_jax`.

    Attributes
    ----------
    x0 : array
        The initial parameters, as one flat vector.
    subsets : Subsets or None
        As many samples as there are data.
    """

    _sums: SampleSums | PlainFunction

    def __init__(
        self,
        library: Library,
        sums: SampleSums | PlainFunction,
        x0: Array,
        tree: Any,  # the parameters that x0 joins
        unflatten: Callable[[Array], Any],  # the way back
        subsets: Subsets | None,
        asked: Arguments,
    ) -> None:
        precond, sampled = asked.precond, isinstance(sums, SampleSums)
        if isinstance(precond, str) and not sampled:
            precond = None  # a plain function has no gradients of single samples
        noise = library.noise if sampled and x0.dtype.itemsize == 4 else None
        traits = Traits(nonlinear=sums.nonlinear, noise=noise, product_cost=sums.product_cost)
        base = x0, subsets, traits, precond, asked.curvature
        kernels = sums.linear_matrix, sums.jacobian_rows
        penalty = _penalty(asked.l2, tree, library, x0)
        super().__init__(sums, Means(penalty), *base, *kernels)
        self._library, self._unflatten = library, unflatten
        self._own_names = Names(library.paths(tree))
        # values and gradients computed before a run, which counts them; one entry
        self.spent: list[tuple[int, int]] = []

    def unflatten(self, x: Any) -> Any:
        """A flat vector (also one of numpy) as the parameters that the model takes.

        ``problem.x0`` stays where it is: ``minimize(problem, res.x)`` continues from a result.
        """
        own = isinstance(x, (np.ndarray, Mapping))  # a mapping, such as a result, is refused
        return self._unflatten(self._to_device(x) if own else x)

    def _finer(self) -> tuple[float | None, dict[str, Any]] | None:
        """Values and gradients in float32, where they are in less.

        Products keep the precision that was asked for: the curvature need not be so exact.
        """
        finer = self._library.finer
        if self.traits.noise is None or finer is None or not isinstance(self._sums, SampleSums):
            return None
        return finer.noise, {"_library": finer, "_sums": self._sums.compiled_by(finer)}

    def _names(self) -> Names:
        return self._own_names

    def _own_product(self, x: Array, idx: Any) -> Product:
        self._check_shape(x)
        given = self._curvature(self._to_device(x), idx)
        own = given if callable(given) else lambda v: given @ v
        return lambda v: own(self._to_device(v))

    def _evaluate(self, x: Array, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        while self.spent:
            self._counts.add(*self.spent.pop())
        return super()._evaluate(x, idx, diagonal)

    def _point(self, x: Any) -> Array:
        """A vector of any library; numpy, if numpy does the algebra of a run."""
        self._check_shape(x)
        hosted = is_hosted(self.x0)
        return np.asarray(x, dtype=self.x0.dtype) if hosted else self._to_device(x)

    def _checked(self, x: Any, idx: Any) -> tuple[Array, Any]:
        self._check_shape(x)
        return x, self._sums.indices(idx)

    def __getstate__(self) -> Never:
        raise TypeError(
            "a problem of from_autograd or from_jax cannot be pickled or deep-copied, as its "
            "functions are compiled or traced: make it again, from the model, the loss and the "
            "data, where it is needed"
        )


# From the arguments of ``from_autograd`` and ``from_jax`` to a problem


# Bytes; the same on every machine, so that a run has the same chunks, and repeats bit for bit.
DEFAULT_MEMORY_BUDGET = 2.0**30
# Relative difference between the mean loss of two samples together and apart: anything less is
# rounding, also with TF32.
MAX_BATCH_DIFFERENCE = 1e-3
# The same between two equal calls: anything less is the order of a sum on a device.
MAX_CALL_DIFFERENCE = 1e-5


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
    instead = "a function without loss and data"
    asked.refuse(instead, "x0", mend="the start of a model is params=")
    asked.refuse(instead, "subsets")
    asked.require("a model", "params", "loss", "data")
    return _of_samples(library, asked, _sample_loss(library, asked.loss, asked.curvature))


def _plain_function(library: Library, asked: Arguments) -> FunctionalProblem:
    """The problem of a function."""
    x0 = _numbers_as_vector(asked.x0)
    flat, unflatten = library.flatten(x0)
    x = as_vector(flat)
    sets = None if asked.subsets is None else as_subsets(asked.subsets)
    check_curvature_of_function(asked.curvature)
    terms = PlainFunction(library, _on_vectors(asked.model, unflatten), sets is not None)
    return FunctionalProblem(library, terms, x, x0, unflatten, sets, asked)


def _of_samples(library: Library, asked: Arguments, loss: SampleLoss) -> FunctionalProblem:
    """The problem of a model and its samples."""
    flat, unflatten = library.flatten(asked.params)
    x, budget, curvature = as_vector(flat), asked.memory_budget, asked.curvature
    assert budget is not None
    seed = seed_from_rng(asked.rng)
    samples = Samples(asked.data, library, x, budget, asked.sample_weight)
    provider = curvature if isinstance(curvature, str) else "gauss-newton"
    kernels = Kernels(library, _on_vectors(asked.model, unflatten), loss, provider)
    of_block = asked.residuals is not None
    terms = SampleSums(kernels, samples, seed, x, asked.chunk_size, budget, of_block)
    if isinstance(asked.loss, str):
        check_targets(asked.loss, from_frame(asked.data[1]), terms.elements)
    library = terms.library  # as it is for so many samples
    sets = Subsets(samples.n)
    problem = FunctionalProblem(library, terms, x, asked.params, unflatten, sets, asked)
    _check_samples(problem)
    return problem


def _blocks(library: Library, asked: Arguments) -> BlockProblem:
    """The sum of blocks of squared residuals."""
    instead = "a model or a plain function, not with residuals="
    asked.refuse(instead, "model", "loss", "data", "subsets", "sample_weight")
    asked.refuse(instead, "x0", mend="the start of residuals is params=")
    asked.require("a list of residuals", "params")
    blocks = as_blocks(asked.residuals)
    check_block_curvature(asked.curvature)
    assert asked.memory_budget is not None
    of_block = replace(
        asked,
        l2=0.0,
        precond=asked.precond if isinstance(asked.precond, str) else None,
        memory_budget=asked.memory_budget / len(blocks),
        rng=as_generator(asked.rng),  # each block draws labels of its own
    )
    squares, terms = squared_residuals(library.xp), []
    for number, block in enumerate(blocks):
        with noting_block(number):
            own = replace(of_block, model=as_model(block), data=as_data(block))
            problem = _of_samples(library, own, squares)
        terms.append(Term(problem, block.weight, problem._sums.elements))
    penalty = _penalty(asked.l2, asked.params, library, problem.x0)
    return BlockProblem(terms, penalty, asked.precond)


def _numbers_as_vector(x0: Any) -> Any:
    """`x0`; a list or tuple of numbers only is a vector, as in SciPy, not a tree."""
    row = isinstance(x0, (list, tuple)) and not hasattr(x0, "_fields")
    numbers = row and len(x0) > 0 and all(isinstance(entry, Real) for entry in x0)
    return np.asarray(x0, dtype=float) if numbers else x0


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
    number = isinstance(l2, Real)
    weights = float(l2) if number else library.flatten(_broadcast(l2, tree, library))[0]
    if not np.all(np.asarray(weights) >= 0):
        raise ValueError(f"l2={l2!r}: expected numbers that are not negative")
    xp = np if is_hosted(x) else library.xp
    return weights or None if number else xp.asarray(weights, dtype=x.dtype)


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
    """Raise if a model's loss is not a sum over samples, or changes from call to call."""
    alone = problem._sums.samples.n == 1
    x0, few = np.asarray(problem.x0), WHOLE if alone else np.array([0, 1])
    both, again = (problem.value(x0, few) for _ in range(2))
    check_deterministic("the model", both, again, MAX_CALL_DIFFERENCE)
    elsewhere = np.random.default_rng(0).standard_normal(x0.shape).astype(x0.dtype)
    warn_if_constant(problem, x0, elsewhere, few)
    if alone:
        return
    apart = sum(problem.value(x0, np.array([i])) for i in range(2)) / 2
    if abs(both - apart) > MAX_BATCH_DIFFERENCE * abs(both):
        raise ValueError(
            f"the mean loss of two samples is {both!r} together and {apart!r} apart: the loss of "
            "a sample must depend on no other sample"
        )
