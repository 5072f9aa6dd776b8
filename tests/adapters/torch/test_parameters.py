"""The parameters of a torch model as one flat vector: which, where, written back, and in numpy."""

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import nn

import ksdmin
from tests.adapters.torch.dense import (
    Dense,
    assert_close,
    dense,
    directions,
    from_module,
    make,
    point,
)
from tests.adapters.torch.zoo import ZOO


@pytest.mark.parametrize("convert", [torch.Tensor.numpy, torch.Tensor.clone, torch.Tensor.float])
def test_load(convert):
    case = ZOO["tied"]()
    problem = ksdmin.from_torch(case.model, case.loss, case.data)
    x = point(problem)
    problem.load(convert(x))
    loaded = nn.utils.parameters_to_vector(case.model.parameters())
    assert_close(loaded, x, 1e-6)
    assert case.model.decode.weight is case.model.embed.weight
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(37,\)"):
        problem.load(np.ones(3))


CHOSEN = [
    ["0.bias", "2.weight", "4.bias"],
    ["0.bias", "2.weight", "2.bias", "4.weight", "4.bias"],
    ["0.weight", "0.bias", "4.weight", "4.bias"],
    ["2.weight", "2.bias", "4.weight", "4.bias"],
]


@pytest.mark.parametrize("how", ["requires_grad", "params"])
@pytest.mark.parametrize("kind", ["hessian", "gauss-newton", "empirical-fisher"])
@pytest.mark.parametrize("names", CHOSEN)
def test_some_parameters(how, kind, names):
    case = ZOO["mlp"]()
    if how == "requires_grad":
        for name, parameter in case.model.named_parameters():
            parameter.requires_grad_(name in names)
    options = {"params": names} if how == "params" else {}
    problem = ksdmin.from_torch(case.model, case.loss, case.data, curvature=kind, **options)
    every = list(case.model.named_parameters())
    free = torch.cat([torch.full((p.numel(),), name in names) for name, p in every])
    right = Dense(case, nn.utils.parameters_to_vector([p for _, p in every]).detach())
    assert torch.equal(problem.x0, right.x[free])
    _, g, squares = problem.value_and_gradient(problem.x0, diagonal=True)
    assert_close(g, right.gradient[free])
    assert_close(squares, right.squares[free])
    v = directions(problem.x0, 1)[:, 0]
    H = getattr(right, kind.replace("-", "_"))[free][:, free]
    assert_close(problem.curvature(problem.x0)(v), H @ v)
    problem.load(problem.x0 + 1)
    moved = nn.utils.parameters_to_vector(case.model.parameters())
    assert_close(moved, right.x + free)


def test_a_tied_parameter_has_two_names():
    by_one, by_other, by_both = (
        make("tied", params=names)
        for names in (["embed.weight"], "decode.weight", ["embed.weight", "decode.weight"])
    )
    assert len(by_one.x0) == len(by_other.x0) == len(by_both.x0) == 12
    assert by_one.value(by_one.x0) == by_other.value(by_one.x0)


def half():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].double()
    return model


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (nn.Flatten(), {}, ValueError, "no trainable parameter"),
        (nn.Linear(3, 2).requires_grad_(False), {}, ValueError, "no trainable parameter"),
        (nn.Linear(3, 2), {"params": []}, ValueError, "no trainable parameter"),
        (nn.Linear(3, 2), {"params": ["bais"]}, ValueError, "no parameter or module 'bais'"),
        (nn.Linear(3, 2), {"params": [torch.zeros(3)]}, ValueError, "not a parameter of the model"),
        (
            nn.Linear(3, 2),
            {"params": [3]},
            TypeError,
            "expected names of parameters or modules, or",
        ),
        (half(), {}, ValueError, "share one dtype and device, found torch.float32 on cpu, torch.f"),
        (nn.Linear(3, 2).half(), {}, TypeError, "float16; expected float32 or float64"),
        (nn.Linear(3, 2), {"precision": "low"}, ValueError, "precision='low'"),
    ],
)
def test_refused_parameters(model, options, error, message):
    with pytest.raises(error, match=message):
        from_module(model, **options)


# Numpy callables, for methods of SciPy


@pytest.mark.parametrize("method", ["BFGS", "Newton-CG", ksdmin.ksd])
def test_numpy_callables(method):
    problem = make("curve", curvature="hessian", l2=0.1)
    hessp = {"hessp": problem.hessp} if method != "BFGS" else {}
    x0 = problem.x0.numpy()
    res = scipy.optimize.minimize(problem.fun, x0, jac=problem.jac, method=method, **hessp)
    assert isinstance(res.x, np.ndarray)
    assert np.abs(problem.jac(res.x)).max() < 1e-3
    assert res.fun == pytest.approx(problem.value(torch.as_tensor(res.x)), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numpy_in_numpy_out(dtype):
    problem, right = make("mlp", curvature="hessian"), dense("mlp", "whole")
    x = right.x.numpy().astype(dtype)
    x.flags.writeable = False
    g, product = problem.jac(x), problem.hessp(x, x)
    assert problem.fun(x) == pytest.approx(right.value, rel=1e-6)
    assert g.dtype == product.dtype == np.float64
    np.testing.assert_allclose(g, right.gradient, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(product, right.hessian @ right.x, rtol=1e-5, atol=1e-5)
