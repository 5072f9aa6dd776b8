"""How a result shows itself, and that it is still SciPy's."""

import copy
import io
import pickle
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.optimize import rosen, rosen_der, rosen_hess_prod

import ksdmin
from ksdmin._run.observer import BAR_FORMAT, shown


@pytest.fixture(scope="module")
def res():
    x0 = np.linspace(-1, 1, 30)
    return ksdmin.minimize(rosen, x0, jac=rosen_der, hessp=rosen_hess_prod)


def parsed(html):
    """The elements; XML, as a browser reads it, closes every tag in order."""
    return ElementTree.fromstring(html.replace("<br>", "<br/>"))


def curve(res):
    points = [e.get("points") for e in parsed(res._repr_html_()).iter() if "polyline" in e.tag]
    return [tuple(map(float, point.split(","))) for point in points[0].split()] if points else []


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))]
)
def test_copies_and_pickles(res, again):
    other = again(res)
    assert type(other) is type(res)
    assert repr(other) == repr(res)
    assert other.history == res.history
    np.testing.assert_array_equal(other.x, res.x)


# Text


def test_text_is_compact(res):
    lines = repr(res).splitlines()
    assert len(lines) <= 13
    assert max(map(len, lines)) < 80
    assert " success: True" in lines
    assert "  status: 0 (CONVERGED)" in lines
    assert f"nit {res.nit}," in repr(res)
    assert "n = 30" in repr(res)
    assert str(res) == repr(res)


@pytest.mark.parametrize("missing", ["x", "jac", "history", "status", "message", "passes", "fun"])
def test_any_field_may_go(res, missing):
    own = copy.copy(res)
    del own[missing]
    assert repr(own)
    assert "".join(parsed(own._repr_html_()).itertext())


def test_strange_fields(res):
    own = copy.copy(res)
    own.update(x=None, jac="none", fun=np.float32(2), status="odd", history=ksdmin.History())
    assert "x: None" in repr(own)
    assert "history: empty" in repr(own)
    assert "status: odd\n" in repr(own)


@pytest.mark.parametrize(("n", "left_out"), [(12, None), (13, "7 more"), (12_006, "12,000 more")])
def test_unknowns_are_shown_or_counted(res, n, left_out):
    own = copy.copy(res)
    own.x = np.linspace(-1e-5, 1e5, n)
    shown = repr(own).partition("x: [")[2].partition("]")[0]
    entries = shown.replace(f"... {left_out} ...", "").split()
    assert len(entries) == (n if left_out is None else 6)
    np.testing.assert_allclose(float(entries[-1]), 1e5)
    assert ("more" in shown) == (left_out is not None)
    assert max(map(len, repr(own).splitlines())) < 80


def test_long_messages_are_folded(res):
    own = copy.copy(res)
    own.message = "The gradient is an estimate. " * 6 + "\nx[0] is 3."
    lines = repr(own).splitlines()
    assert max(map(len, lines)) < 80
    assert " ".join(repr(own).split()).startswith(f"message: {' '.join(own.message.split())}")


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_arrays_of_other_libraries(library):
    xp = pytest.importorskip("jax.numpy" if library == "jax" else library)
    res = ksdmin.minimize(lambda x: ((x - 1) ** 2).sum(), xp.zeros(9), jac=lambda x: 2 * (x - 1))
    assert "x: [1 1 1 1 1 1 1 1 1], n = 9" in repr(res)


# HTML


def test_html_is_escaped(res):
    own = copy.copy(res)
    own.message = "<script>alert('x')</script> & more"
    root = parsed(own._repr_html_())
    assert "script" not in {element.tag for element in root.iter()}
    assert own.message in "".join(root.itertext())


def test_curve_is_that_of_the_history(res):
    points = curve(res)
    assert len(points) == len(res.history)
    norms, heights = res.history["gradient_norm"], [y for _, y in points]
    assert np.argmin(heights) == np.argmax(norms)  # pixels count downwards
    assert np.argmax(heights) == np.argmin(norms)
    assert all(0 <= x <= 240 and 0 <= y <= 48 for x, y in points)


@pytest.mark.parametrize(
    "norms",
    [[1.0], [1.0, 1.0], [1.0, 0.0], [np.inf, 1.0], [np.nan, 1.0], [0.0, 0.0], [1e300, 1e-300]],
)
def test_curve_of_odd_histories(res, norms):
    own = copy.copy(res)
    own.history = [SimpleNamespace(gradient_norm=norm, seconds=0.1) for norm in norms]
    assert all(0 <= y <= 48 for _, y in curve(own))
    assert repr(own)


# Problems, options, solvers


def fun(x, idx=None):
    return x @ x


def test_problems_of_callables():
    assert repr(ksdmin.as_problem(rosen, jac=rosen_der)) == (
        "<FunctionProblem: fun=rosen, jac=rosen_der>"
    )
    problem = ksdmin.as_problem(fun, jac=True, hessp=rosen_hess_prod, subsets=60_000)
    assert repr(problem) == (
        "<FunctionProblem: fun=fun, jac=True, hessp=rosen_hess_prod, 60,000 samples>"
    )
    assert "jac='2-point'" in repr(ksdmin.as_problem(fun))
    assert repr(ksdmin.as_problem(residuals=fun)) == (
        "<ResidualProblem: residuals=fun, jac='2-point'>"
    )


def test_problems_of_torch():
    torch = pytest.importorskip("torch")
    net, X = torch.nn.Linear(3, 1), torch.ones(20, 3)
    problem = ksdmin.from_torch(net, torch.nn.MSELoss(), (X, X[:, :1]))
    assert repr(problem) == (
        "<TorchProblem: 4 unknowns (float32, cpu), 20 samples, curvature='gauss-newton'>"
    )
    plain = ksdmin.from_torch(fun, x0=torch.ones(3, dtype=torch.float64))
    assert repr(plain) == "<TorchFunctionProblem: 3 unknowns (float64, cpu)>"
    blocks = ksdmin.from_torch(net, residuals=[(lambda m, b: m(b), X), (lambda m, b: m(b), X[:5])])
    assert repr(blocks) == (
        "<BlockProblem: 4 unknowns (float32, cpu), blocks of samples: 20, 5, "
        "curvature='gauss-newton'>"
    )


@pytest.mark.parametrize("library", ["autograd", "jax"])
def test_problems_of_functions(library):
    xp = pytest.importorskip(f"{library}.numpy")
    make = getattr(ksdmin, f"from_{library}")
    X = np.ones((20, 3))
    problem = make(
        lambda w, X: X @ w, "squared-error", (X, X), params=xp.ones((3, 3)), curvature="hessian"
    )
    assert repr(problem).startswith("<FunctionalProblem: 9 unknowns (float")
    assert repr(problem).endswith("20 samples, curvature='hessian'>")


def test_options_show_what_was_given():
    assert repr(ksdmin.Options()) == "Options()"
    assert repr(ksdmin.Options(maxfun=None)) == "Options()"
    options = ksdmin.Options(gtol=1e-5, without="forcing")
    assert repr(options) == "Options(gtol=1e-05, without=('forcing',))"
    assert repr(ksdmin.HFOptions(damping=1.0)) == "HFOptions(damping=1.0)"
    assert eval(repr(options), vars(ksdmin)) == options
    assert "krylov_dim=20" in repr(ksdmin.PAPER)


def test_subsets_show_what_was_given():
    assert repr(ksdmin.Subsets(1000, curvature=0.05)) == "Subsets(1000, curvature=0.05)"
    assert repr(ksdmin.Subsets(9, disjoint=False)) == "Subsets(9, disjoint=False)"
    assert repr(ksdmin.Subsets([(1, 2, 3)])) == "Subsets(your own sets)"


def test_a_solver_says_where_it_stands():
    solver = ksdmin.Solver(rosen, [-1.2, 1.0], jac=rosen_der)
    assert repr(solver) == "<Solver: ksd, 2 unknowns, not begun>"
    first = next(solver)
    assert repr(solver) == (
        f"<Solver: ksd, 1 iteration, value {first.fun:.6g}, "
        f"max |gradient| {first.gradient_norm:.1e}, running>"
    )
    for _ in solver:
        pass
    assert repr(solver).endswith("CONVERGED>")
    assert f"{solver.result().nit} iterations" in repr(solver)


# Progress


def test_the_progress_line_fits_80_columns():
    tqdm = pytest.importorskip("tqdm")
    record = SimpleNamespace(value=-1.234567e-5, gradient_norm=1e-5, passes=12_345.6, seconds=0.0)
    bar = tqdm.tqdm(desc="krylov", bar_format=BAR_FORMAT, file=io.StringIO())
    bar.set_postfix(refresh=False, **shown(record, 99_999.0))
    assert "left" not in shown(record, np.inf)
    line = tqdm.tqdm.format_meter(**{**bar.format_dict, "n": 12_345, "elapsed": 35_999.0})
    bar.close()
    assert line == (
        "krylov 12345 it, 9:59:59, f=-1.23457e-05, g=1e-05, left=99999s, passes=1.23e+04"
    )
    assert len(line) < 80
