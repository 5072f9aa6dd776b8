"""Krylov Subspace Descent as a torch optimizer."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from scipy.optimize import OptimizeWarning
from torch import Tensor
from torch.optim import Optimizer

from ksdmin import _options
from ksdmin._adapters.torch.closure import Closure, ClosureProblem, FlatParameters
from ksdmin._adapters.torch.problem import refuse_autocast, refuse_inference_mode
from ksdmin._options import NotGiven, Options, parse_options
from ksdmin._problem.arrays import Space
from ksdmin._problem.protocol import VALUE_ROUNDINGS
from ksdmin._problem.subsets import PLAIN
from ksdmin._problem.user_values import frames_to_the_user
from ksdmin._problem.values import changed
from ksdmin._result import TESTS, Record, Status
from ksdmin._run.checkpoint_file import decode, encode
from ksdmin._run.evaluator import Evaluated, Ledger
from ksdmin._run.loop import Loop, make_run
from ksdmin._run.observer import Observer
from ksdmin._run.run import State
from ksdmin._solver import KSD as METHOD

KSD_STATE = "ksd"  # the key in `Optimizer.state`: what is there belongs to all parameters together

# Options of minimize() that concern a whole run, which is the user's loop here.
OF_A_RUN = (
    *("maxiter", "maxfun", "maxtime", "disp", "progress", "return_all"),
    *("checkpoint", "checkpoint_every", "fmin", "validation", "patience", "average", "history"),
)
NAMES = tuple(field.name for field in fields(Options) if field.name not in OF_A_RUN)

# Names in other torch optimizers: as for minimize(), except for what the closure or the loop does
# here.
ELSEWHERE = {
    **_options.ELSEWHERE,
    "epochs": "your loop decides how long it runs",
    "n_epochs": "your loop decides how long it runs",
    "batch_size": "the closure decides which samples it takes",
    "weight_decay": "add the penalty to the loss in the closure, such as "
    "l2 / 2 * sum(p.square().sum() for p in parameters)",
    "max_iter": "here it is called iterations",
}
DIFFERENCED = (
    "KSD: the closure calls loss.backward(), so that curvature products are differences of float32 "
    "gradients, with errors of about 1e-3. Return the loss without backward(), or use float64 "
    "(model.double())"
)
RANDOM = (
    "KSD: the loss is random: with the same parameters the closure returned {} and {}. Steps "
    "compare values, and end with PRECISION_LOSS. Put the model into eval mode (dropout); draw "
    "batches and noise before the step, or seed them in the closure's first line: "
    "torch.manual_seed(0)"
)
SHORTEST = 2  # history length of a run whose records are not used
NO_RATE = "KSD has no learning rate: setting lr (by a scheduler?) has no effect"


class KSD(Optimizer):
    """Krylov Subspace Descent as a :class:`torch.optim.Optimizer`.

    For existing training loops, in place of :class:`torch.optim.LBFGS`. If you can change the loop,
    ``ksdmin.minimize(ksdmin.from_torch(net, loss, data))`` is better: it samples the data, has the
    Gauss-Newton matrix, and uses CUDA graphs.

    Parameters
    ----------
    params : iterable
        Parameters, named parameters, or groups of them. All groups are taken together: they have no
        options of their own. Parameters that require no gradient are skipped.
    iterations : int
        The number of iterations in a step.
    **options
        The options of :class:`ksdmin.Options` that concern steps: `gtol`, `gtol_rel`,
        `ftol`, `xtol`, `krylov_dim`, `memory`, `memory_budget`, `pairs`, `floor`, `inner_maxiter`,
        `preset` and `without`. (`damping` and `diagonal_power` are accepted but, as with any
        function without subsets, have no effect.)

    Attributes
    ----------
    status : Status or None
        Why no more iterations were made: ``CONVERGED``, ``FTOL``, ``XTOL``, ``PRECISION_LOSS``,
        ``NOT_FINITE`` or ``UNBOUNDED``. Further steps then do nothing, as long as the closure
        computes the same function. None: the run has not ended.
    converged : bool
        Whether the test of `gtol`, `gtol_rel`, `ftol` or `xtol` holds.
    last : Record or None
        The last iteration, as in ``res.history``. Its `seconds` are those spent in `step`.
    closure_calls : int
        How often closures have been called.

    Notes
    -----
    A step calls the closure several times, with other parameters each time. At the end the
    parameters are those of the last accepted iteration, also if the closure raises an exception.
    The first step calls it once more, to check that the gradient is that of the loss. The closure
    has to be deterministic within a step: no dropout, and the same samples. From step to step the
    samples may change. Use the whole data set, or a large part of it, as with LBFGS: each step
    minimises what it is given.

    There are two kinds of closures. The first returns the loss with its graph. Gradients and
    curvature products are then exact, by double backward, and ``p.grad`` does not change. The
    second calls ``loss.backward()``, as with other optimizers. Then products are differences of
    gradients. Each costs one call of the closure and has about half of the digits, so use float64.
    Gradients must not be clipped or scaled. ``p.grad`` is the gradient at the new parameters.

    With torch.compile, a closure that returns the loss runs eagerly, since compiled code has no
    second derivatives. One that calls ``loss.backward()`` runs compiled.

    It works in one process only: with ``DistributedDataParallel`` each process would judge a step
    by its own loss, and the parameters would diverge.

    Groups have an entry ``lr``, since schedulers and loggers look for it. It has no effect.

    Examples
    --------
    >>> import torch, ksdmin.torch
    >>> X = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    >>> net = torch.nn.Linear(1, 1).double()
    >>> optimizer = ksdmin.torch.KSD(net.parameters(), gtol=1e-8)
    >>> def closure():
    ...     return torch.nn.functional.mse_loss(net(X), 3 * X + 1)
    >>> for _ in range(10):
    ...     loss = optimizer.step(closure)
    >>> optimizer.converged
    True
    >>> round(net.weight.item(), 4), round(net.bias.item(), 4)
    (3.0, 1.0)
    """

    _said: frozenset[str] = frozenset()
    _eager = True  # until a closure calls backward(): see Closure
    # What a step leaves to the next one in this process, beside what is saved: the run, without the
    # closure (what it has recorded on the device is worth many steps), its options, and how its
    # state was saved. A copy, or one that is loaded, does without.
    _kept: tuple[Loop, Options, Any] | None = None

    def __init__(self, params: Any, *, iterations: int = 1, **options: Any) -> None:
        _refuse(options)
        if hasattr(params, "named_parameters"):
            name = type(params).__name__
            raise TypeError(f"KSD: expected net.parameters(), not the module itself, a {name}")
        parsed = parse_options(options, Options)
        chosen = {name: getattr(parsed, name) for name in NAMES}
        for name, value in chosen.items():
            if isinstance(value, NotGiven):
                chosen[name] = float(value)  # torch.load(weights_only=True) accepts no other
        super().__init__(params, {"lr": 1.0, "iterations": _whole(iterations), **chosen})
        FlatParameters(self._tensors())  # raise now for what no step could accept

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, before the first step only."""
        if KSD_STATE in self.state:
            raise ValueError(
                "KSD: parameters cannot be added after the first step, as the curvature is known "
                "for the others only: make a new optimizer"
            )
        own = set(param_group) - {"params", "param_names", "name"}
        if own:
            raise ValueError(
                f"KSD: a group has its own {', '.join(sorted(own))}, but all parameters are taken "
                "together: pass options to KSD itself"
            )
        super().add_param_group(param_group)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, also in another process or on another device."""
        for group in state_dict["param_groups"]:
            missing = {"iterations", *NAMES} - set(group)
            if missing:
                raise ValueError(
                    "KSD: the state_dict comes from another optimizer, or from another version of "
                    f"ksdmin: its groups have no {', '.join(sorted(missing))}"
                )
        super().load_state_dict(dict(state_dict))

    @property
    def status(self) -> Status | None:
        """Why no more iterations were made; None: the run has not ended."""
        code = self._saved.get("status")
        return None if code is None else Status(code)

    @property
    def converged(self) -> bool:
        """Whether the test of `gtol`, `gtol_rel`, `ftol` or `xtol` holds."""
        return self.status in TESTS

    @property
    def last(self) -> Record | None:
        """The last iteration; None before the first step."""
        if not self._saved:
            return None
        return Record(**self._saved["state"]["value"]["fields"]["record"]["fields"])

    @property
    def closure_calls(self) -> int:
        """How often closures have been called."""
        return int(self._saved.get("closure_calls", 0))

    @property
    def _saved(self) -> dict[str, Any]:
        return self.state.get(KSD_STATE, {})  # type: ignore[call-overload,no-any-return]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make one iteration, or as many as the option `iterations` says.

        Parameters
        ----------
        closure : callable
            ``closure() -> loss``, with its graph, or after ``loss.backward()``.

        Returns
        -------
        Tensor or float
            The loss before the step, as the closure returned it, but without its graph.
        """
        if not callable(closure):
            raise TypeError("KSD: step needs a closure that returns the loss: step(closure)")
        refuse_inference_mode()
        parameters = FlatParameters(self._tensors())
        refuse_autocast(parameters.tensors[0].device, "and put autocast into the closure")
        if self._saved.get("sizes", parameters.sizes) != parameters.sizes:
            raise ValueError(
                "KSD: the parameters that require a gradient, or their sizes, have changed since "
                "the last step: make a new optimizer"
            )
        iterations, options = self._options()
        with torch.no_grad():
            called = Closure(closure, parameters, eager=self._eager)
            return self._step(called, parameters, iterations, options)

    def _step(
        self, closure: Closure, parameters: FlatParameters, iterations: int, options: Options
    ) -> Any:
        x, gradients = parameters.flat(), parameters.gradients()
        loop, ended = None, self.status is not None
        try:
            closure.value_and_gradient(x)
            loss = closure.result
            self._eager = closure.eager = not closure.calls_backward
            if not self._saved and not (closure.draws and self._is_random(closure, x, float(loss))):
                closure.check_gradient(x)
            if closure.calls_backward and x.dtype == torch.float32:
                self._say(DIFFERENCED)
            loop = self._taken_up(closure, x, options)
            for _ in range(iterations):
                loop.advance()
            state = loop.state if loop.ended() and loop.state is not None else loop.look()
            if loop.status == Status.PRECISION_LOSS and not ended:
                self._is_random(closure, state.here.x, state.here.value)
            if closure.calls_backward:
                gradients = list(parameters.split(state.here.gradient.clone()))
            return loss
        finally:  # an exception of the closure passes, too
            closure.leave()
            parameters.write(x if loop is None or loop.state is None else loop.state.here.x)
            parameters.set_gradients(gradients)
            if loop is not None and loop.state is not None:
                self._save(loop, closure, parameters, options)

    def _is_random(self, closure: Closure, x: Tensor, value: float) -> bool:
        """Whether the loss at `x` has changed from `value`; if so, warn."""
        again = closure.value_beside(x)
        noise = VALUE_ROUNDINGS * torch.finfo(x.dtype).eps
        if not abs(again - value) > noise * abs(value):
            return False
        if RANDOM not in self._said:
            self._said = self._said | {RANDOM}
            self._say(RANDOM.format(value, again))
        return True

    def _taken_up(self, closure: Closure, x: Tensor, options: Options) -> Loop:
        """The run, continued with a new closure, which has been called at `x`."""
        saved, loop = self._saved.get("state"), None
        if self._kept is not None and self._kept[1] == options and self._kept[2] is saved:
            loop = self._kept[0]
        state = None if loop is None else loop.state
        if loop is None or state is None or never_finite(state) or not loop.run.space.holds(x):
            loop = self._loaded(closure, x, options, saved)
            state = loop.state
        if state is not None:
            here = Evaluated(x, state.here.idx, *closure.value_and_gradient(x))
            same = is_same_function(loop.run.space, state.here, here)
            loop.replace_problem(ClosureProblem(closure, loop.run.space), here, same=same)
        return loop

    def _loaded(self, closure: Closure, x: Tensor, options: Options, saved: Any) -> Loop:
        """The run from what is saved, or from its start."""
        space = Space(x)
        problem, state = ClosureProblem(closure, space), None
        if saved is not None:
            state = decode(METHOD.state, saved, {"problem": problem}, lambda u: u.to(x))
            state = state.from_file(PLAIN.full)
        if state is not None and never_finite(state):
            state = None
        plain = make_run(space, PLAIN, options, None)
        run = changed(METHOD.prepare(plain, options, problem.traits), maxiter=math.inf)
        ledger = Ledger(problem) if state is None else state.ledger
        observer = Observer(None, replace(options, history=SHORTEST), space)
        loop = Loop(METHOD, run, ledger, x, observer, state=state)
        loop.status = None if state is None else self.status
        return loop

    def _save(
        self, loop: Loop, closure: Closure, parameters: FlatParameters, options: Options
    ) -> None:
        """Keep what the next step needs, as plain values and tensors, and as objects."""
        assert loop.state is not None
        ledger = loop.state.ledger
        state = changed(loop.state, ledger=changed(ledger, best=None))  # only results use it
        encoded = encode(state, {"problem": ledger.problem})
        loop.leave_problem()
        self._kept = loop, options, encoded
        saved: Any = {
            "state": encoded,
            "status": None if loop.status is None else int(loop.status),
            "sizes": parameters.sizes,
            "closure_calls": self.closure_calls + closure.calls,
        }
        self.state[KSD_STATE] = saved  # type: ignore[index]

    def _tensors(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _options(self) -> tuple[int, Options]:
        """The options in the groups, where a user may have changed them."""
        first = self.param_groups[0]
        for group in self.param_groups:
            differ = [name for name in ("iterations", *NAMES) if group[name] != first[name]]
            if differ:
                raise ValueError(
                    f"KSD: the groups differ in {', '.join(differ)}, but all parameters are taken "
                    "together: set the same in every group"
                )
            if group["lr"] != 1.0:
                self._say(NO_RATE)
        return _whole(first["iterations"]), Options(**{name: first[name] for name in NAMES})

    def _say(self, message: str) -> None:
        """Warn, once."""
        if message not in self._said:
            self._said = self._said | {message}
            warnings.warn(message, OptimizeWarning, stacklevel=frames_to_the_user())


def _refuse(options: Mapping[str, Any]) -> None:
    """Raise for arguments of other optimizers, or of `minimize`."""
    for name, reason in ELSEWHERE.items():
        if name in options:
            raise TypeError(f"KSD takes no {name}: {reason}")
    useless = [name for name in OF_A_RUN if name in options]
    if useless:
        raise ValueError(
            f"options without effect on ksdmin.torch.KSD: {', '.join(useless)}. Leave them out: "
            "your loop decides how long it runs"
        )


def _whole(iterations: Any) -> int:
    """`iterations`, if that is a whole number from 1 up."""
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise ValueError(f"option iterations={iterations!r}: expected a whole number from 1 up")
    return iterations


def never_finite(state: State) -> bool:
    """Whether a run has not begun yet, because no value was finite."""
    return state.record.iteration == 0 and not math.isfinite(state.here.value)


def is_same_function(space: Space, old: Evaluated, new: Evaluated) -> bool:
    """Whether the function seems to be that of the last step, up to rounding."""
    noise = VALUE_ROUNDINGS * space.eps
    return torch.equal(old.x, new.x) and abs(new.value - old.value) <= noise * abs(old.value)
