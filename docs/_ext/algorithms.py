"""The paper's algorithms, line by line beside the code that does it.

Each row names a function (or a script) and a piece of its source. Where the piece is no longer
there, the build says so: the page cannot drift from the code.
"""

import inspect
from pathlib import Path
from pydoc import locate

from tables import markdown, warn

ROOT = Path(__file__).parents[2]
BY_HAND = "examples/benchmarks/torch_products.py"  # Algorithm 1 for one net, written out

# number: [(lines, the paper, function or script, a piece of its source)]
# Accents carry an empty group before an index: docutils would put the index below them.
ALGORITHMS = {
    "1": [
        ("2-3", r"$v^{(0)} \gets x, \quad v_1^{(0)} \gets 0$", BY_HAND, "activations = [X]"),
        ("4, 9", r"for $l = 1 \ldots L$", BY_HAND, "for layer, a, slope in zip(linears"),
        ("5", r"$h^{(l)} \gets W^{(l)} v^{(l-1)}$", BY_HAND, "h = layer(activations[-1])"),
        (
            "6",
            r"$h_1^{(l)} \gets W^{(l)} v_1^{(l-1)} + W_1^{(l)} v^{(l-1)}$",
            BY_HAND,
            "torch.addmm(h1, tangent, layer.weight.T)",
        ),
        (
            "7",
            r"$v^{(l)} \gets \phi^{(l)}(h^{(l)})$",
            BY_HAND,
            "activations.append(torch.sigmoid(h) if squashed else h)",
        ),
        (
            "8",
            r"$v_1^{(l)} \gets \phi'^{(l)}(h^{(l)}) \odot h_1^{(l)}$",
            BY_HAND,
            "tangent = h1 if slope is None else h1 * slope",
        ),
        (
            "2-9",
            "together: $v_1^{(L)} = J \\theta_1$",
            "_adapters.curvature.gauss_newton",
            "jvp(v)",
        ),
        (
            "10",
            r"${\widehat{v}{}}_2^{(L)} \gets \frac{\partial^2 E}{\partial v^2} v_1^{(L)}$",
            "_adapters.curvature.gauss_newton",
            "loss_hessian(jvp(v))",
        ),
        (
            "10",
            r"for softmax: $\mathrm{diag}(p) - p p^T$",
            "_adapters.curvature.softmax_cross_entropy",
            "pu - p * xp.sum(pu, axis=1, keepdims=True)",
        ),
        (
            "12",
            r"${\widehat{h}{}}_2^{(l)} \gets {\widehat{v}{}}_2^{(l)} \odot \phi'^{(l)}(h^{(l)})$",
            BY_HAND,
            "back = back if slope is None else back * slope",
        ),
        (
            "13",
            r"${\widehat{v}{}}_2^{(l-1)} \gets {W^{(l)}}^T {\widehat{h}{}}_2^{(l)}$",
            BY_HAND,
            "back = back @ layer.weight",
        ),
        (
            "14",
            r"${\widehat{W}{}}_2^{(l)} \gets {\widehat{h}{}}_2^{(l)} {v^{(l-1)}}^T$",
            BY_HAND,
            "(back.T @ a).reshape(-1)",
        ),
        (
            "11-16",
            r"together: ${\widehat{\theta}{}}_2 = J^T {\widehat{v}{}}_2^{(L)}$",
            "_adapters.curvature.gauss_newton",
            "vjp(loss_hessian(jvp(v)))",
        ),
    ],
    "2": [
        ("1", r"$v_1 \gets D^{-1} g$", "_ksd.krylov.Growth.begin", "z = self._rows.P.solve(g)"),
        (
            "2",
            r"$v_1 \gets v_1 / \sqrt{v_1^T v_1}$ (here: $v_1^T D v_1$)",
            "_ksd.krylov.Growth.begin",
            "self._rows.put(0, g, z, 1 / norm)",
        ),
        ("3", r"for $k = 1 \ldots K+1$", "_ksd.krylov.krylov_basis", "while found:"),
        ("4", r"$w \gets H v_k$", "_ksd.krylov.Growth.measure", "product(rows.V[k, :])"),
        (
            "5-6",
            r"if $k < K$: $u \gets D^{-1} w$",
            "_ksd.krylov.Growth._follow",
            "z = rows.P.solve(rows.r)",
        ),
        (
            "7-8",
            r"else if $k = K$: $u \gets d_{prev}$",
            "_ksd.krylov.krylov_basis",
            "growth.adjoin(d_prev, product)",
        ),
        (
            "10-11",
            r"${\overline{h}{}}_{k,j} \gets w^T v_j$ (here: of the last two $j$)",
            "_ksd.krylov.Growth.measure",
            "h = rows.along(k, w)",
        ),
        (
            "12",
            r"$u \gets u - (u^T v_j) v_j$ (here: in the inner product of $D$)",
            "_ksd.krylov.Growth.measure",
            "rows.leave(k, w, h)",
        ),
        (
            "14-15",
            r"$v_{k+1} \gets u / \sqrt{u^T u}$",
            "_ksd.krylov.Growth._follow",
            "rows.put(self.dim, rows.r, z, 1 / norm)",
        ),
        (
            "18",
            r"upper triangle of $\overline{H}$ from the lower",
            "_ksd.krylov.Growth._take_in",
            "self._H_bar[k - 1, k] = self._H_bar[k, k - 1] = across",
        ),
    ],
    "3": [
        ("1", r"$d_{prev} \gets e_1$", "_ksd.start.start", "e_1 = (run.space.unit(0),)"),
        (
            "2",
            r"for $n = 1, 2, \ldots$",
            "_run.loop.Loop.advance",
            "self.method.step(self.run, state)",
        ),
        ("3", r"sample $A_n, B_n, C_n$", "_ksd.step.step", "next_sets(run, state, trial)"),
        (
            "4",
            r"$g \gets \frac{1}{\vert A_n \vert} \sum_{i \in A_n} g_i(\theta)$",
            "_ksd.step.evaluate",
            "evaluator.evaluate(trial.x, A, diagonal=",
        ),
        (
            "5",
            r"$D \gets$ diagonal of the Fisher matrix on $A_n$, floored",
            "_ksd.precond.diagonal_preconditioner",
            "space.xp.clip(diagonal, floor * largest, largest)",
        ),
        (
            "6",
            r"Algorithm 2: $V$, $\overline{H}$ on $B_n$",
            "_ksd.steps.krylov.propose",
            "krylov_space(run, evaluator, state)",
        ),
        (
            "7",
            r"$\widehat{H} \gets$ eigenvalues of $\overline{H}$ floored",
            "_ksd.steps.search.positive_curvature",
            "preset.spectrum(",
        ),
        (
            "8",
            r"$\widehat{H} = C C^T$",
            "_ksd.steps.search.Whitening.__init__",
            "lapack.dpotrf(H_hat, lower=1)",
        ),
        (
            "9",
            r"$\overline{V} = V C^{-T}$ (here: never formed)",
            "_ksd.steps.search.Whitening.coefficients",
            "a.dot(self._inverse)",
        ),
        (
            "10",
            r"$a \gets 0$",
            "_ksd.steps.search.SubspaceObjective.start",
            "np.zeros(self._basis.dim)",
        ),
        (
            "11",
            r"optimum $a^*$ by BFGS on $C_n$, of $f(\theta + \overline{V} a)$",
            "_ksd.steps.search.search",
            "bfgs(",
        ),
        (
            "12",
            r"$d_{prev} \gets \overline{V} a^*$",
            "_ksd.steps.search.search",
            "found.x - here.x",
        ),
        ("13", r"$\theta \gets \theta + d_{prev}$", "_ksd.step.accept_or_refuse", "here=there"),
    ],
}


def table(number):
    """The two columns of an algorithm."""
    rows = []
    for lines, paper, where, piece in ALGORITHMS[number]:
        if piece not in source(where):
            warn(f"docs/_ext/algorithms.py: {piece!r} is not in {where} any more")
        rows.append([lines, paper, f"{link(where)}<br>`{piece.rstrip('(')}`"])
    return markdown(["line", "the paper", "the code"], rows)


def source(where):
    """What a function or a script says, on one line a line."""
    return (ROOT / where).read_text() if "/" in where else inspect.getsource(find(where))


def find(where):
    """`_ksd.steps.search.search`, or a method."""
    return locate(f"ksdmin.{where}")


def link(where):
    if "/" in where:
        return f"[{Path(where).name}](../{where})"
    documented = where.removesuffix(".__init__")
    return f"{{py:obj}}`{where} <ksdmin.{documented}>`"


def functions():
    """The documentation of every function in the tables."""
    named = {where: None for rows in ALGORITHMS.values() for _, _, where, _ in rows}
    names = [where.removesuffix(".__init__") for where in named if "/" not in where]
    kinds = {True: "autoclass", False: "autofunction"}
    lines = []
    for name in sorted(set(names)):
        found = find(name)
        method = inspect.isfunction(found) and "." in found.__qualname__
        kind = "automethod" if method else kinds[inspect.isclass(found)]
        lines += [f".. {kind}:: ksdmin.{name}", ""]
    return "\n".join(["```{eval-rst}", *lines, "```"])
