"""Train and eval mode: a run keeps those of from_torch's time, whatever the user sets meanwhile."""

import pytest
import torch
from torch import nn

import ksdmin
import ksdmin.torch

X = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(20, 3)
Y = X.square().sum(1, keepdim=True)
FEW = {"maxiter": 4}


class Scaled(nn.Module):
    """Another function in each mode, which no class of torch's says."""

    def forward(self, x):
        return 2 * x if self.training else x


class Split(nn.Module):
    """Nested modules in different modes, one of them with dropout."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.5), Scaled())
        self.outer = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1))
        self.outer.eval()

    def forward(self, x):
        return self.outer(self.inner(x))


class LogCosh(nn.Module):
    """A loss with a mode of its own."""

    def forward(self, z, y):
        r = (z - y).squeeze(1)
        return torch.log(torch.cosh(r)) * (2 if self.training else 1)


def plain():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def scaled():
    return nn.Sequential(plain(), Scaled())


def net_of(make):
    torch.manual_seed(0)
    return make().double()


def of_model(net, x=X, y=Y):
    return ksdmin.from_torch(net, nn.MSELoss(), (x, y), rng=0)


def of_blocks(net, x=X, y=Y):
    return ksdmin.from_torch(net, residuals=[(lambda m, x: m(x) - 1, x, 1.0)], rng=0)


def of_function(net, x=X, y=Y):
    like = lambda m: x.to(next(m.parameters()))  # noqa: E731
    return ksdmin.from_torch(lambda m: (m(like(m)) - y).square().mean(), x0=net)


KINDS = [of_model, of_blocks, of_function]
MODES = {"eval": lambda net: net.eval(), "train": lambda net: net.train()}


def modes(net):
    return [module.training for module in net.modules()]


def look(net, problem, x, mode):
    """What accuracy functions do."""
    problem.load(x)
    MODES[mode](net)
    net(X)


@pytest.mark.parametrize(
    ("make_problem", "make", "mode"),
    [
        *((problem, scaled, "eval") for problem in KINDS),
        *((problem, Split, "train") for problem in KINDS[:2]),  # nothing seeds that of a function
        (of_model, plain, "eval"),
    ],
)
def test_a_run_is_the_same_function_in_every_mode(make_problem, make, mode):
    net = net_of(make)
    problem = make_problem(net)
    x0 = problem.x0.clone()
    expected = ksdmin.minimize(problem, rng=0, options=FEW)
    value = problem.value(x0)

    found = ksdmin.minimize(
        problem, x0, rng=0, options=FEW, callback=lambda x: look(net, problem, x, mode)
    )
    assert torch.equal(found.x, expected.x)
    assert modes(net) == [mode == "train"] * len(modes(net))  # the user's, not ours
    assert problem.value(x0) == value
    again = ksdmin.minimize(problem, x0, rng=0, options=FEW)  # between two runs
    assert torch.equal(again.x, expected.x)

    steps = ksdmin.Solver(problem, x0, rng=0, options=FEW)
    for iteration in steps:
        look(net, problem, iteration.x, mode)
    assert torch.equal(steps.result().x, expected.x)


def test_the_users_modes_come_back_after_an_exception():
    class Fails(nn.Module):
        broken = False

        def forward(self, x):
            if self.broken:
                raise ArithmeticError(f"training is {self.training}")
            return x

    net = net_of(lambda: nn.Sequential(nn.Linear(3, 1), Fails()))
    problem = of_model(net)
    net.eval()
    net[1].broken = True
    with pytest.raises(ArithmeticError, match="training is True"):
        problem.value(problem.x0)
    assert not any(modes(net))


def test_a_loss_with_a_mode():
    net, loss = net_of(plain), LogCosh()
    problem = ksdmin.from_torch(net, loss, (X, Y))
    expected = problem.value(problem.x0)
    loss.eval()
    assert problem.value(problem.x0) == expected
    assert not loss.training


@pytest.mark.parametrize("make_problem", KINDS)
def test_the_same_in_float64(make_problem):
    """The copy in double precision has the modes that the model was given with."""
    net = net_of(scaled).float()
    problem = make_problem(net, X.float(), Y.float())
    expected = problem.value(problem.x0)
    net.eval()
    assert problem.in_double().value(problem.x0.double()) == pytest.approx(expected, rel=1e-5)
