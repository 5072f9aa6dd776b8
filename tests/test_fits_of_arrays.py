"""Fits of functions of torch and jax: the same steps as of numpy's, without a written Jacobian."""

import numpy as np
import pytest

import ksdmin
from tests.jax_precision import jax_in

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
jnp = jax.numpy

T = np.linspace(0, 3, 30)
Y = 2.5 * np.exp(-1.3 * T) + 0.5 + 0.02 * np.sin(20 * T)
START = np.array([1.0, 1.0, 0.0])
LIBRARIES = ("torch", "jax")
EXP = {"torch": torch.exp, "jax": jnp.exp, "numpy": np.exp}


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax_in("float64"):
        yield


def array(library, values):
    """In float64."""
    make = {"numpy": np.array, "torch": torch.tensor, "jax": jnp.asarray}[library]
    return make(np.asarray(values, dtype=np.float64))


def curve(library):
    exp = EXP[library]
    return lambda t, a, b, c: a * exp(-b * t) + c


def residuals(library):
    t, y, model = array(library, T), array(library, Y), curve(library)
    return lambda x: model(t, *x) - y


def assert_fitted(x, rtol):
    """They are the parameters of numpy's fit."""
    expected = ksdmin.least_squares(residuals("numpy"), START)
    np.testing.assert_allclose(np.asarray(x), expected.x, rtol=rtol)


def slopes(x):
    e = np.exp(-x[1] * T)
    return np.stack([e, -x[0] * T * e, np.ones_like(T)], axis=1)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("given", [{}, {"loss": "soft_l1", "f_scale": 0.01}, {"bounds": (0, 2.4)}])
def test_the_same_run_as_with_a_written_jacobian(library, given):
    expected = ksdmin.least_squares(residuals("numpy"), START, slopes, **given)
    res = ksdmin.least_squares(residuals(library), array(library, START), **given)
    assert type(res.x) is type(array(library, START))
    np.testing.assert_allclose(np.asarray(res.x), expected.x, rtol=1e-9)
    assert (res.status, res.nfev, res.njev) == (expected.status, expected.nfev, expected.njev)
    for name in ("fun", "jac", "grad", "covariance", "standard_errors", "active_mask"):
        assert isinstance(res[name], np.ndarray)
        np.testing.assert_allclose(res[name], expected[name], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ksdmin.covariance(res), ksdmin.covariance(expected), rtol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_tree_has_its_form_again_and_bounds_by_name(library):
    t, y, exp = array(library, T), array(library, Y), EXP[library]

    def fun(p, shift):
        return {"all": p["size"] * exp(-p["rest"][0] * t) + p["rest"][1] - y + shift}

    x0 = {"size": array(library, 1.0), "rest": (array(library, 1.0), array(library, 0.0))}
    seen = []

    def callback(intermediate_result):
        seen.append(float(intermediate_result.x["size"]))

    res = ksdmin.least_squares(
        fun, x0, bounds={"size": (0, 2.0), "rest": (-10, 10)}, args=(0.0,), callback=callback
    )
    expected = ksdmin.least_squares(
        residuals("numpy"), START, slopes, bounds=([0, -10, -10], [2, 10, 10])
    )
    assert res.success
    assert isinstance(res.x["rest"], tuple)
    found = [float(res.x["size"]), *map(float, res.x["rest"])]
    np.testing.assert_allclose(found, expected.x, rtol=1e-8)
    assert len(seen) == res.nit
    assert abs(seen[-1] - 2.0) < 1e-12
    assert ksdmin.covariance(res).shape == (3, 3)


def test_the_parameters_of_a_module():
    torch.manual_seed(0)
    net = torch.nn.Linear(2, 1).double()
    X = torch.randn(20, 2, dtype=torch.float64)
    before = net.weight.detach().clone()
    res = ksdmin.least_squares(lambda net: net(X)[:, 0] - X @ X.new_tensor([2.0, -1.0]) - 3, net)
    assert res.success
    assert torch.equal(net.weight, before)
    net.load_state_dict(res.x)
    np.testing.assert_allclose(net.weight.detach(), [[2, -1]], rtol=1e-12)
    np.testing.assert_allclose(net.bias.detach(), [3], rtol=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
def test_fewer_residuals_than_variables(library):
    fun = lambda x: x[:2] ** 2 + x[1:] - 1  # noqa: E731
    start = [0.5, 0.6, 0.7]
    expected = ksdmin.least_squares(fun, np.array(start))
    res = ksdmin.least_squares(fun, array(library, start))
    assert res.success
    np.testing.assert_allclose(np.asarray(res.x), expected.x, rtol=1e-5)


def test_functions_that_vmap_does_not_take():
    """They differentiate by autograd themselves, or have a backward pass of their own."""

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    def inner(x):
        points = torch.linspace(0, 1, 5, dtype=x.dtype, requires_grad=True)
        u = x[0] * points**3 + x[1] * points**2
        (du,) = torch.autograd.grad(u.sum(), points, create_graph=True)
        return du - 6 * points**2 - 2 * points

    x0 = torch.tensor([1.0, 0.5], dtype=torch.float64)
    res = ksdmin.least_squares(inner, x0)
    assert res.success
    np.testing.assert_allclose(res.x, [2, 1], rtol=1e-10)
    assert res.nfev < 5
    res = ksdmin.least_squares(lambda x: torch.cat([Square.apply(x) - 4, x - 2]), x0)
    assert res.success
    np.testing.assert_allclose(res.x, [2, 2], rtol=1e-8)


@pytest.mark.parametrize("library", LIBRARIES)
def test_where_autodiff_misses_a_part_differences_take_its_place(library):
    cut = (lambda u: u.detach()) if library == "torch" else jax.lax.stop_gradient
    fun = residuals(library)
    res = ksdmin.least_squares(
        lambda x: fun(x) + 0.5 * x[0] - cut(0.5 * x[0]) * 1.0, array(library, START), xtol=1e-7
    )
    assert_fitted(res.x, rtol=1e-4)


@pytest.mark.parametrize("library", LIBRARIES)
def test_functions_that_leave_the_library(library):
    res = ksdmin.least_squares(lambda x: residuals("numpy")(np.asarray(x)), array(library, START))
    assert res.success
    assert_fitted(res.x, rtol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("method", ["trf", "lm"])
def test_scipys_methods_get_the_same(library, method):
    res = ksdmin.least_squares(residuals(library), array(library, START), method=method)
    assert type(res.x) is type(array(library, START))
    assert_fitted(res.x, rtol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_float32_is_kept_and_ends_honestly(library):
    make = {"torch": torch.tensor, "jax": jnp.asarray}[library]
    t, y, x0 = (make(np.asarray(u, np.float32)) for u in (T, Y, np.ones(3)))
    res = ksdmin.least_squares(lambda x: curve(library)(t, *x) - y, x0)
    assert res.x.dtype == x0.dtype
    assert res.success
    assert_fitted(res.x, rtol=1e-4)


def test_a_start_in_float32_beside_data_in_float64():
    """Torch's default dtype is no reason to have seven digits."""
    res = ksdmin.least_squares(residuals("torch"), torch.tensor([1.0, 1.0, 0.0]))
    assert res.success
    assert res.x.dtype == torch.float64


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("sigma", [None, 0.01 * (1 + T), np.diag(0.01 * (1 + T)) + 1e-4])
def test_curve_fit(library, sigma):
    popt, pcov = ksdmin.curve_fit(curve("numpy"), T, Y, sigma=sigma)
    given = None if sigma is None else array(library, sigma)
    found, covariance = ksdmin.curve_fit(
        curve(library), array(library, T), array(library, Y), sigma=given
    )
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, popt, rtol=1e-7)
    np.testing.assert_allclose(covariance, pcov, rtol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_curve_fit_from_a_start_of_the_library(library):
    y = Y.copy()
    y[3] = np.nan
    popt, _, info, _, status = ksdmin.curve_fit(
        curve(library), T, array(library, y), array(library, START), nan_policy="omit",
        full_output=True, bounds=(0, 10), method="trf",
    )  # fmt: skip
    assert type(popt) is type(array(library, START))
    kept = np.isfinite(y)
    expected, _ = ksdmin.curve_fit(curve("numpy"), T[kept], Y[kept])
    np.testing.assert_allclose(np.asarray(popt), expected, rtol=1e-5)
    assert (len(info["fvec"]), status > 0) == (29, True)


def test_curve_fit_with_a_written_jacobian():
    def jac(t, a, b, c):
        e = torch.exp(-b * t)
        return torch.stack([e, -a * t * e, torch.ones_like(t)], 1)

    popt, _ = ksdmin.curve_fit(curve("torch"), torch.tensor(T), torch.tensor(Y), jac=jac)
    expected, _ = ksdmin.curve_fit(curve("numpy"), T, Y)
    np.testing.assert_allclose(popt, expected, rtol=1e-7)


@pytest.mark.parametrize(
    ("fun", "x0", "given", "error", "said"),
    [
        (residuals("torch"), torch.ones(3), {"jac": "cs"}, ValueError, "leave jac out"),
        (residuals("torch"), torch.ones(3), {"bounds": {"a": (0, 1)}}, ValueError, "no names"),
        (residuals("torch"), {"a": 1.0}, {}, TypeError, "x0 is a mapping of numbers"),
        (residuals("torch"), torch.ones(3, dtype=int), {}, TypeError, "float32 or float64"),
        (lambda x: 1j * x, torch.ones(3), {}, TypeError, "real numbers"),
        (residuals("torch"), torch.ones(3), {"bounds": (2, 3)}, ValueError, "outside the bounds"),
    ],
)
def test_what_cannot_be_is_named(fun, x0, given, error, said):
    with pytest.raises(error, match=said):
        ksdmin.least_squares(fun, x0, **given)


@pytest.mark.cuda
def test_on_a_gpu():
    t, y = torch.tensor(T, device="cuda"), torch.tensor(Y, device="cuda")
    res = ksdmin.least_squares(
        lambda x: curve("torch")(t, *x) - y, torch.ones(3, dtype=torch.float64, device="cuda")
    )
    assert res.success
    assert res.x.device.type == "cuda"
    assert_fitted(res.x.cpu(), rtol=1e-7)
    popt, _ = ksdmin.curve_fit(curve("torch"), t, y)
    assert_fitted(popt, rtol=1e-7)
