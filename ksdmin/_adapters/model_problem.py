"""The mean loss of a model over samples, with a penalty: one problem for every library.

Each library provides sums over samples (:class:`Sums`) and means of them (:class:`Means`). A plain
function is a sum of one term.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ksdmin._adapters.curvature import Product
from ksdmin._adapters.flat_problem import DIAGONAL_SAMPLES, FlatProblem, as_penalty
from ksdmin._problem.arrays import Array, namespace_of
from ksdmin._problem.counting import Counts
from ksdmin._problem.protocol import Jacobian, Traits
from ksdmin._problem.subsets import WHOLE, Subsets
from ksdmin._problem.team import Team
from ksdmin._problem.values import changed

# A Gauss-Newton product has the operations of so many forward passes: it has two backward passes
# through the model. (Counted in torch: 5 to 7, and 2.4 for a net of one layer that is
# differentiated twice in its inputs.)
FORWARD_PASSES = 6.0
# In operations of a large matrix product: an operation in a net's own, small matrix products (2 to
# 3 on a CPU, for nets of 481 to 9,873 parameters), and an element that any other function writes
# (about 5 ns on a CPU; on a GPU, which is limited by its memory, some picoseconds).
SMALL_PRODUCT, ELEMENT = 3.0, 100.0


def product_cost(products: float, elements: float, samples: int) -> float | None:
    """The cost of a Gauss-Newton product for each sample; None if nothing was counted.

    The values of so many samples take these operations in matrix products, and write so many
    elements in other functions.
    """
    forward = (SMALL_PRODUCT * products + ELEMENT * elements) / samples
    return FORWARD_PASSES * forward or None


class Sums:
    """What is computed of a model at a point x: sums over the samples of a set.

    `precision` is the library's name for it; a library without precisions ignores it.
    """

    samples: Any = None  # with `indices`, `size`, `picked` and `is_weighted`; None: a function
    has_squares = True  # whether the squared gradients of samples can be computed

    def for_run(self) -> Any:
        """The sums for a run, or for its next step."""
        return self

    def told_by(self, team: Team) -> Any:
        """The sums for a run of these processes, to which failures are reported."""
        return self

    def indices(self, idx: Any) -> Any:
        """A user's set, as the other methods take it."""
        return idx

    def size(self, idx: Any) -> int:
        """How many samples a set has; a plain function is a mean already."""
        return 1

    def diagonal_samples(self, idx: Any) -> Any:
        """Those samples of a set that the diagonal is estimated from."""
        return idx

    def total(self, kind: str, x: Array, idx: Any, precision: Any) -> Sequence[Any]:
        """The losses; "gradient": and their gradient; "diagonal": and squared gradients."""
        raise NotImplementedError

    def squares(self, x: Array, idx: Any, precision: Any) -> Array:
        """The squared gradients alone; they may be overwritten."""
        return self.total("diagonal", x, idx, precision)[2]

    def product(
        self, x: Array, idx: Any, precision: Any, on_recompute: Callable[[], None]
    ) -> Product:
        """The curvature product; `on_recompute` is called if a forward pass is repeated."""
        raise NotImplementedError

    def matrix(self, kernel: Any, x: Array, idx: Any, precision: Any) -> Array:
        """The curvature matrix, by a kernel; it may be overwritten."""
        raise NotImplementedError

    def jacobian(self, kernel: Any, x: Array, idx: Any, precision: Any) -> Sequence[Array]:
        """Rows M^1/2 J of the Gauss-Newton matrix, the slopes of the losses, and M^1/2.

        All of them may be overwritten.
        """
        raise NotImplementedError

    def slopes(self, kernel: Any, x: Array, idx: Any, precision: Any) -> tuple[Any, Array]:
        """The losses, and their slopes in the outputs."""
        raise NotImplementedError


class SumsOverSamples(Sums):
    """Those of a model, whose samples know the sets."""

    seed: int  # of the samples that the diagonal is estimated from
    max_diagonal_samples: int  # how many these are at most

    def indices(self, idx: Any) -> Any:
        return self.samples.indices(idx)

    def size(self, idx: Any) -> int:
        return int(self.samples.size(idx))

    def picked(self, idx: Any, count: int) -> Any:
        """At most `count` samples of a set, always the same ones."""
        return self.samples.picked(idx, count, self.seed)

    def diagonal_samples(self, idx: Any) -> Any:
        return self.picked(idx, self.max_diagonal_samples)


class Means:
    """Means of sums over so many samples, with the penalty (l2 / 2) |x|^2."""

    def __init__(self, l2: Any) -> None:
        # number, array or None: the weight of each entry's square; None: there is no penalty
        self.l2 = l2

    @np.errstate(all="ignore")
    def value(self, total: Any, size: int, x: Array) -> Any:
        """The mean loss."""
        return total / size + (0.0 if self.l2 is None else float((self.l2 * x * x).sum() / 2))

    @np.errstate(all="ignore")
    def gradient(self, total: Array, size: int, x: Array) -> Array:
        mean = total / float(size)
        return (mean if self.l2 is None else mean + self.l2 * x).astype(x.dtype, copy=False)

    @np.errstate(all="ignore")
    def squares(self, total: Array, size: int, x: Array) -> Array:
        """The mean of squared gradients, with the penalty's diagonal."""
        mean = total / float(size)
        return (mean if self.l2 is None else mean + self.l2).astype(x.dtype, copy=False)

    def product(self, total: Array, size: int, v: Array) -> Array:
        """The product of a vector; `total` may be overwritten later."""
        return self.gradient(total, size, v)

    def own_product(self, product: Array, v: Array) -> Array:
        """The same for a mean that the user has computed."""
        return product if self.l2 is None else product + self.l2 * v

    def matrix(self, total: Array, size: int) -> Array:
        H = total / float(size)
        return H if self.l2 is None else H + namespace_of(H).eye(len(H), dtype=H.dtype) * self.l2

    def rows(self, R: Array, scale: float) -> Array:
        """The rows times a number; they may be overwritten."""
        return scale * R

    def residuals(self, slopes: Array, root: Array, scale: float) -> Array:
        """scale M^-1/2 slopes, so that the rows times it are the gradient; zero where M is."""
        xp = namespace_of(root)
        return xp.where(root > 0, scale / xp.where(root > 0, root, 1.0), 0.0) * slopes


class ModelProblem(FlatProblem):
    """A model, or a function, as a problem."""

    _precision: tuple[Any, Any] = (None, None)  # of values and gradients, and of products

    def __init__(
        self,
        # What a library computes.
        sums: Any,
        means: Means,
        x0: Array,
        subsets: Subsets | None,
        traits: Traits,
        precond: Any,
        # str, callable or None: a provider's name, or the user's own (x, idx) -> product, of the
        # mean loss.
        curvature: Any,
        # kernel or None: what computes the curvature matrix, and the rows of the Jacobian, where
        # they are affordable.
        matrix: Any = None,
        rows: Any = None,
    ) -> None:
        if callable(curvature):
            matrix = rows = None
        traits = replace(
            traits,
            has_matrix=matrix is not None,
            matrix_cost=None if matrix is None else matrix.cost,
            has_jacobian=rows is not None,
            rows_per_sample=1.0 if rows is None else float(rows.elements),
            has_finer_arithmetic=True,
        )
        super().__init__(x0, subsets, traits, precond)
        self._sums, self._means = sums, means
        self._curvature, self._matrix, self._rows = curvature, matrix, rows

    @property
    def is_weighted(self) -> bool:
        """Whether the samples have weights, or ignored labels."""
        samples = self._sums.samples
        return samples is not None and bool(samples.is_weighted)

    def counting(self, counts: Counts) -> Self:
        """A copy that counts in `counts`: for a run, or for the next step of one."""
        return changed(super().counting(counts), _sums=self._sums.for_run())

    def told_by(self, team: Team) -> Self:
        """A copy whose sums tell these processes of a failure."""
        return changed(self, _sums=self._sums.told_by(team))

    def spread_over(self, team: Team) -> Self:
        return changed(self.told_by(team), _team=team)

    def in_finer_arithmetic(self) -> Any:
        """The problem with less rounding, in the end float64; None if there is none."""
        finer = self._finer()
        if finer is None:
            return self.in_double()
        noise, changes = finer
        return changed(self, traits=replace(self.traits, noise=noise), **changes)

    # What each library adds

    def _finer(self) -> tuple[float | None, dict[str, Any]] | None:
        """The noise of values in finer arithmetic, and what changes; None: there is none."""
        raise NotImplementedError

    def _checked(self, x: Any, idx: Any) -> tuple[Array, Any]:
        """A point and a set, as the sums take them."""
        raise NotImplementedError

    def _own_product(self, x: Array, idx: Any) -> Product:
        """The product of the user's own curvature."""
        raise NotImplementedError

    # What follows from the sums

    def _value(self, x: Array, idx: Any) -> Any:
        x, idx = self._checked(x, idx)
        with self.lock:
            self._counts.nfev += 1
            own = self._sums.total("value", x, idx, self._precision[0])
            (total,), _ = self.team.joint(own, lambda _: [], self._counts)
            return self._means.value(total, self._sums.size(idx), x)

    def _evaluate(self, x: Array, idx: Any, diagonal: bool) -> tuple[Any, ...]:
        with self.lock:
            x, idx = self._checked(x, idx)
            self._counts.add(nfev=1, njev=1)
            squared = diagonal and isinstance(self._precond, str) and self._sums.has_squares
            chosen = self._sums.diagonal_samples(idx) if squared else idx
            if squared and chosen is idx:
                return self._means_of("diagonal", x, idx)
            value, g = self._means_of("gradient", x, idx)
            if not diagonal:
                return value, g
            if squared:
                return value, g, self._estimated_diagonal(x, chosen)
            if isinstance(self._precond, str):  # the identity as preconditioner
                return value, g, self._space.xp.ones_like(x)
            return value, g, self._user_diagonal(x, idx)

    def _means_of(self, kind: str, x: Array, idx: Any) -> tuple[Any, ...]:
        """("gradient") value and gradient; ("diagonal") with the mean of the squared gradients."""
        means, size = self._means, self._sums.size(idx)
        own, *vectors = self._sums.total(kind, x, idx, self._precision[0])
        (total,), (g, *squares) = self.team.joint([own], lambda _: vectors, self._counts)
        diagonal = (means.squares(u, size, x) for u in squares)
        return means.value(total, size, x), means.gradient(g, size, x), *diagonal

    def _share(self, x: Array, idx: Any) -> tuple[list[Any], Array, Callable[[Any], Any]]:
        x, idx = self._checked(x, idx)
        means, size = self._means, self._sums.size(idx)
        total, g = self._sums.total("gradient", x, idx, self._precision[0])
        along = means.gradient(g, size, x) if self.team.is_first else g / size
        return [total], along, lambda totals: means.value(totals[0], size, x)

    def _estimated_diagonal(self, x: Array, chosen: Any) -> Array:
        """The diagonal, estimated from some of the samples."""
        assert self.subsets is not None
        if self.subsets.n is not None:
            self._counts.passes += 2 * DIAGONAL_SAMPLES / self.subsets.n
        own = self._sums.squares(x, chosen, self._precision[0])
        (squares,) = self.team.joint_parts([own], self._counts)
        return self._means.squares(squares, self._sums.size(chosen), x)

    def curvature(self, x: Array, idx: Any = WHOLE) -> Product:
        means = self._means
        if callable(self._curvature):
            own = self._own_product(x, idx)
            return self._counted(lambda v: means.own_product(own(v), v))
        x, idx = self._checked(x, idx)
        size = self._sums.size(idx)
        with self.lock:
            product = self._sums.product(x, idx, self._precision[1], self._count_forward_pass)

        def multiply(v: Array) -> Array:
            again = self._count_forward_pass
            with self.lock:
                total = self.team.joint_product(product(v), self._counts, again)
                return means.product(total, size, v)

        return self._counted(multiply)

    def matrix(self, x: Array, idx: Any = WHOLE) -> Array:
        """The curvature matrix itself, if the traits say that there is one."""
        if self._matrix is None:
            raise ValueError("this problem has no curvature matrix: see traits.has_matrix")
        x, idx = self._checked(x, idx)
        self._counts.nhev += self._matrix.products
        with self.lock:
            own = self._sums.matrix(self._matrix, x, idx, self._precision[1])
            (H,) = self.team.joint_parts([own], self._counts)
        return self._means.matrix(H, self._sums.size(idx))

    def jacobian(self, x: Array, idx: Any = WHOLE) -> Jacobian:
        """The curvature as rows, if the traits say that there are any."""
        if self._rows is None or not self.traits.has_jacobian:
            raise ValueError("this problem has no Jacobian: see traits.has_jacobian")
        x, idx = self._checked(x, idx)
        kernel, sums, means, size = self._rows, self._sums, self._means, self._sums.size(idx)
        with self.lock:
            own = sums.jacobian(kernel, x, idx, self._precision[1])
            R, slopes, root = self.team.joint_parts(own, self._counts)
        self._counts.nhev += kernel.products  # without those of rows that did not fit into memory
        scale = size**-0.5

        def at(y: Array) -> tuple[Any, Array]:
            self._counts.nfev += 1
            with self.lock:
                own, here = sums.slopes(kernel, y, idx, self._precision[0])
                (total,), (slopes,) = self.team.joint([own], lambda _: [here], self._counts)
                return means.value(total, size, y), means.residuals(slopes, root, scale)

        rows, residuals = means.rows(R, scale), means.residuals(slopes, root, scale)
        return Jacobian(rows, residuals, as_penalty(means.l2), at)
