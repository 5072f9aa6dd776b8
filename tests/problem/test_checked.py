"""A user's own problem: what its verbs return is checked, and they may write into what they get."""

import numpy as np
import pytest

import ksdmin

N = 4
HESSIAN = np.diag(np.arange(1.0, N + 1)) + 0.3
X0 = np.full(N, 2.0)


def fun(x):
    return float(x @ HESSIAN @ x / 2 - x.sum() + np.sum(x**4) / 4)


def jac(x):
    return HESSIAN @ x - 1 + x**3


class Plain:
    """The three verbs, as they should be."""

    def value(self, x, idx):
        return fun(x)

    def value_and_gradient(self, x, idx):
        return fun(x), jac(x)

    def curvature(self, x, idx):
        return lambda v: HESSIAN @ v + 3 * x**2 * v


def problem(**verbs):
    return type("Own", (Plain,), verbs)()


def run(own, x0=X0, **kwargs):
    return ksdmin.minimize(own, x0, **kwargs)


def assert_right(res):
    assert res.success
    assert res.fun == fun(res.x)
    assert res.jac.tobytes() == jac(res.x).tobytes()
    assert np.abs(jac(res.x)).max() <= 1e-5


methods = pytest.mark.parametrize("method", ["ksd", "hf"])


# What the verbs return


def gradient(returned):
    """A problem whose verb `value_and_gradient` returns this."""
    return problem(value_and_gradient=lambda self, x, idx: returned(x))


def curvature(returned):
    """A problem whose verb `curvature` returns this."""
    return problem(curvature=lambda self, x, idx: returned)


VERB, EXPECTED = "value_and_gradient", r"expected \(value, gradient\)"
WRONG = {
    rf"{VERB} returned shape \(4, 1\), expected \(4,\)": gradient(
        lambda x: (fun(x), jac(x)[:, None])
    ),
    rf"{VERB} returned shape \(\), expected \(4,\)": gradient(lambda x: (fun(x), 1.0)),
    f"{VERB} returned values that are not real": gradient(lambda x: (fun(x), jac(x) + 0j)),
    f"{VERB} returned None: is a return statement": gradient(lambda x: (fun(x), None)),
    f"{VERB} returned a NoneType: {EXPECTED}": gradient(lambda x: None),
    f"{VERB} returned a ndarray: {EXPECTED}": gradient(jac),
    f"{VERB} returned a tuple of 3: {EXPECTED}": gradient(lambda x: (fun(x), jac(x), 1.0)),
    rf"a scalar value: {VERB} returned an array of shape \(4,\)": gradient(
        lambda x: (x**2, jac(x))
    ),
    "curvature returned a ndarray: expected a function v -> Hv": curvature(HESSIAN),
    r"the product of curvature returned shape \(\), expected \(4,\)": curvature(lambda v: v @ v),
    "the product of curvature returned None": curvature(lambda v: None),
}
OF_TYPE = ("not real", "returned None", "expected a function")


@methods
@pytest.mark.parametrize("told", WRONG)
def test_what_is_wrong_is_named(told, method):
    error = TypeError if any(word in told for word in OF_TYPE) else ValueError
    with pytest.raises(error, match=told):
        run(WRONG[told], method=method)


@pytest.mark.parametrize("value", [None, 1j, "high", np.ones(2)])
def test_a_value_is_one_number(value):
    told = "must return a scalar value: value returned"
    with pytest.raises(ValueError, match=told):
        run(problem(value=lambda self, x, idx: value), method="hf")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), r"returned a tuple of 2: expected \(value, gradient, diagonal\)"),
        ((np.ones((N, 1)),), r"value_and_gradient returned shape \(4, 1\)"),
    ],
)
def test_a_diagonal_is_checked_likewise(more, told):
    def verb(self, x, idx, *, diagonal=False):
        return (fun(x), jac(x), *(more if diagonal else ()))

    with pytest.raises(ValueError, match=told):
        run(problem(value_and_gradient=verb, traits=ksdmin.Traits(has_diagonal=True)))


def projecting(slopes):
    """A problem on samples that has slopes along a basis, and no more."""
    return problem(
        subsets=ksdmin.Subsets(100, curvature=10, search=10),
        traits=ksdmin.Traits(has_projected_gradient=True),
        value_and_projected_gradient=lambda self, x, idx, V: (fun(x), slopes(V @ jac(x))),
    )


def test_slopes_along_a_basis():
    assert_right(run(projecting(lambda slopes: slopes), rng=0))
    assert_right(run(projecting(lambda slopes: slopes.tolist()), rng=0))


def test_slopes_of_the_wrong_shape():
    told = r"value_and_projected_gradient returned slopes of shape \(\d, 1\), not \(\d,\)"
    with pytest.raises(ValueError, match=told):
        run(projecting(lambda slopes: slopes[:, None]), rng=0)


# What they may return


@pytest.mark.parametrize("kind", [list, tuple, np.float32, lambda g: g.astype(">f8")])
def test_lists_and_other_floats(kind):
    verbs = {
        "value_and_gradient": lambda self, x, idx: [np.float64(fun(x)), kind(jac(x))],
        "curvature": lambda self, x, idx: lambda v: kind(HESSIAN @ v + 3 * x**2 * v),
    }
    res = run(problem(**verbs), options={"gtol": 1e-4})
    assert res.success
    assert res.x.dtype == res.jac.dtype == np.float64


# Two libraries


def in_torch(requires_grad=False, **verbs):
    torch = pytest.importorskip("torch")
    H = torch.as_tensor(HESSIAN).requires_grad_(requires_grad)
    right = {
        "value": lambda self, x, idx: x @ H @ x / 2 - x.sum(),
        "value_and_gradient": lambda self, x, idx: (x @ H @ x / 2 - x.sum(), H @ x - 1),
        "curvature": lambda self, x, idx: lambda v: H @ v,
        "value_and_projected_gradient": lambda self, x, idx, V: (
            x @ H @ x / 2 - x.sum(),
            V @ (H @ x - 1),
        ),
        "traits": ksdmin.Traits(has_projected_gradient=True),
        "subsets": ksdmin.Subsets(100, curvature=10, search=10),
    }
    return problem(**{**right, **verbs}), torch.full((N,), 2.0, dtype=torch.float64)


@pytest.mark.parametrize(
    ("origin", "verbs"),
    [
        ("gradient", {"value_and_gradient": lambda self, x, idx: (1.0, np.ones(N))}),
        ("the product of curvature", {"curvature": lambda self, x, idx: lambda v: v.numpy()}),
    ],
)
def test_numpy_where_x_is_a_tensor(origin, verbs):
    told = rf"{origin} returned numpy\.ndarray, but x0 is an array of .*torch: return the same kind"
    with pytest.raises(TypeError, match=told):
        run(*in_torch(**verbs), rng=0)


def test_tensors_may_carry_a_graph():
    """Whatever a verb returns is detached: values, gradients, products, and slopes."""
    res = run(*in_torch(requires_grad=True), rng=0)
    assert res.success
    assert not res.x.requires_grad


def test_tensors_where_x_is_numpy():
    """Numpy takes any array-like."""
    torch = pytest.importorskip("torch")
    verbs = {"value_and_gradient": lambda self, x, idx: (fun(x), torch.as_tensor(jac(x)))}
    assert_right(run(problem(**verbs)))


# What they may do to their arguments


@methods
def test_verbs_may_write_into_what_they_get_and_return_the_same_arrays(method):
    gradients, products = np.empty(N), np.empty(N)

    def overwritten(x, out):
        x[...] = np.nan
        return out

    def value_and_gradient(self, x, idx):
        gradients[:] = jac(x)
        return overwritten(x, (fun(x), gradients))

    def curvature(self, x, idx):
        at = x.copy()

        def product(v):
            products[:] = HESSIAN @ v + 3 * at**2 * v
            return overwritten(v, products)

        return overwritten(x, product)

    own = problem(
        value=lambda self, x, idx: overwritten(x, fun(x)),
        value_and_gradient=value_and_gradient,
        curvature=curvature,
    )
    x0 = X0.copy()
    res = run(own, x0, method=method)
    assert_right(res)
    assert res.x.tobytes() == run(problem(), method=method).x.tobytes()
    assert x0.tobytes() == X0.tobytes()


@pytest.mark.parametrize("method", ["L-BFGS-B", "trust-ncg"])
def test_scipys_methods_check_a_problem_likewise(method):
    with pytest.raises(ValueError, match=r"value_and_gradient returned shape"):
        run(gradient(lambda x: (fun(x), jac(x)[:, None])), method=method)
