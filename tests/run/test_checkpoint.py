"""A saved run goes on as if nothing had happened, bit for bit; a wrong file is refused."""

import json
import warnings
from functools import cache
from unittest import mock

import numpy as np
import pytest
from scipy.optimize import OptimizeWarning, rosen, rosen_der

import ksdmin
from ksdmin import Status
from ksdmin._run import checkpoint_file
from tests.run import runs
from tests.run.comparison import assert_same

every_run = pytest.mark.parametrize("run", runs.ALL.values(), ids=runs.ALL)
SOME = ["rosenbrock", "hessian_free", "samples", "an_iterable_of_sets", "net", "blocks_of_epochs"]
some_runs = pytest.mark.parametrize("run", [runs.ALL[name] for name in SOME], ids=SOME)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ksd"


@cache
def result_of(run):
    """What a run finds that nothing interrupts."""
    return ksdmin.minimize(**run())


@every_run
def test_a_run_that_is_saved_and_loaded_again_and_again(run, path):
    """After each of the first iterations, and of the last."""
    whole = result_of(run)
    solver = ksdmin.Solver(**run())
    for k in range(whole.nit):
        iteration = next(solver)
        assert iteration.nit == k + 1
        if k < 3 or k % 7 == 0 or k > whole.nit - 3:
            solver.save(path)
            solver = ksdmin.Solver.load(path, run()["fun"])
    with pytest.raises(StopIteration):
        next(solver)
    assert_same(solver.result(), whole)


@some_runs
def test_a_run_that_has_ended_ends_again(run, path):
    arguments = run()
    options = {**arguments.get("options", {}), "checkpoint": path}
    whole = ksdmin.minimize(**{**arguments, "options": options})
    for _ in range(2):
        assert_same(ksdmin.resume(path, run()["fun"]), whole)


@some_runs
def test_a_run_that_ended_early_goes_on(run, path):
    whole, arguments = result_of(run), run()
    options = arguments.get("options", {})
    first = {**arguments, "options": {**options, "maxiter": 3, "checkpoint": path}}
    res = ksdmin.minimize(**first)
    assert res.nit == 3
    again = ksdmin.resume(path, run()["fun"], options={"maxiter": options.get("maxiter")})
    assert_same(again, whole)
    assert np.all(np.diff(again.history["seconds"]) >= 0)


@some_runs
def test_a_run_that_ended_by_an_exception_goes_on(run, path):
    whole = result_of(run)

    def callback(intermediate_result):
        if intermediate_result.nit == 2:
            raise OSError("no more")

    arguments = run()
    options = {**arguments.get("options", {}), "checkpoint": path, "checkpoint_every": 1000}
    with pytest.raises(OSError, match="no more") as caught:
        ksdmin.minimize(**{**arguments, "options": options, "callback": callback})
    assert caught.value.ksdmin_result.nit == 2
    seen = []
    again = ksdmin.resume(
        path, run()["fun"], lambda intermediate_result: seen.append(intermediate_result.nit)
    )
    assert_same(again, whole)
    assert seen == list(range(2, whole.nit + 1))  # 2 once more: the callback had not finished


def test_how_often_it_is_written(path):
    options = {"checkpoint": path, "checkpoint_every": 4, "maxiter": 10}
    with mock.patch.object(checkpoint_file, "write", wraps=checkpoint_file.write) as write:
        ksdmin.minimize(rosen, runs.X0, jac=rosen_der, options=options)
    assert write.call_count == 1 + 2 + 1  # the start, iterations 4 and 8, the end


ROWS = np.random.default_rng(0).standard_normal(110)
OWN_SETS = {  # what a function may return for the numbers of the rows
    "array": lambda rows: rows,
    "list": np.ndarray.tolist,
    "tuple": lambda rows: (rows, "rows"),
    "range": lambda rows: range(rows[0], rows[-1] + 1),
    "number": lambda rows: int(1000 * rows[0] + rows[-1]),
    "name": lambda rows: f"{rows[0]} to {rows[-1]}",
}


@pytest.mark.parametrize("kind", OWN_SETS)
def test_a_callers_own_sets(kind, path):
    """Made anew for each iteration and in each process: equal sets are the same set."""
    every, parts = np.arange(110), (np.arange(50), np.arange(50, 110))
    names = {repr(OWN_SETS[kind](rows)): rows for rows in (every, *parts)}
    own = lambda rows: OWN_SETS[kind](rows.copy())  # noqa: E731
    drawn = lambda k: (own(every), own(parts[k % 2]), own(parts[k % 2]))  # noqa: E731

    def problem():
        return ksdmin.as_problem(
            lambda x, idx: float(np.mean((x[0] - ROWS[names[repr(idx)]]) ** 4) + x[1] ** 2),
            jac=lambda x, idx: np.array(
                [np.mean(4 * (x[0] - ROWS[names[repr(idx)]]) ** 3), 2 * x[1]]
            ),
            subsets=ksdmin.Subsets(lambda iteration, rng: drawn(iteration), full=own(every)),
        )

    whole = ksdmin.minimize(problem(), [3.0, 1.0], rng=0)
    assert whole.success
    solver = ksdmin.Solver(problem(), [3.0, 1.0], rng=0)
    for _ in range(whole.nit):
        next(solver)
        solver.save(path)
        solver = ksdmin.Solver.load(path, problem())
    assert list(solver) == []
    assert_same(solver.result(), whole)


def test_sets_that_cannot_be_saved_are_refused_at_the_start(path):
    draw = lambda iteration, rng: ({1, 2}, {1}, {2})  # noqa: E731
    problem = ksdmin.as_problem(
        lambda x, idx: x @ x, jac=lambda x, idx: 2 * x, subsets=ksdmin.Subsets(draw)
    )
    with pytest.raises(TypeError, match="set, which cannot be saved"):
        ksdmin.minimize(problem, [1.0], options={"checkpoint": path})


# Files that are refused


@pytest.fixture
def saved(path):
    options = {"checkpoint": path, "maxiter": 4}
    ksdmin.minimize(ksdmin.as_problem(rosen, jac=rosen_der), runs.X0, options=options)
    return path


def refused(path, match, problem=None, error=ValueError, **kwargs):
    before = path.read_bytes()
    with pytest.raises(error, match=match):
        ksdmin.resume(path, problem or ksdmin.as_problem(rosen, jac=rosen_der), **kwargs)
    assert path.read_bytes() == before


@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_torn_file(saved, share):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(share * len(content))])
    refused(saved, "damaged|not a checkpoint")


def test_a_byte_that_was_changed_anywhere(saved):
    content = saved.read_bytes()
    anywhere = np.random.default_rng(0).choice(len(content), 20, replace=False)
    for at in (content.index(b"format"), *anywhere):
        changed = bytearray(content)
        changed[at] ^= 0x10
        saved.write_bytes(changed)
        refused(saved, "damaged|not a checkpoint|format")


def test_a_foreign_file(path):
    path.write_bytes(b"my results, years of work\n")
    refused(path, "not a checkpoint")
    with pytest.raises(ValueError, match="not a checkpoint"):
        ksdmin.minimize(rosen, runs.X0, options={"checkpoint": path})
    with pytest.raises(ValueError, match="not a checkpoint"):
        ksdmin.Solver(rosen, runs.X0, jac=rosen_der).save(path)
    assert path.read_bytes() == b"my results, years of work\n"


def test_a_file_of_a_newer_version(saved):
    magic, digest, header, rest = saved.read_bytes().split(b"\n", 3)
    newer = json.dumps({**json.loads(header), "format": 99, "ksdmin": "9.1"}).encode()
    saved.write_bytes(b"\n".join([magic, digest, newer, rest]))
    refused(saved, r"format 99, expected 2: it was saved by another version of ksdmin \(9.1\)")


def test_a_file_of_another_run(saved):
    before = saved.read_bytes()
    for call in (
        lambda: ksdmin.minimize(rosen, runs.X0, jac=rosen_der, options={"checkpoint": saved}),
        lambda: ksdmin.Solver(rosen, runs.X0, jac=rosen_der).save(saved),
    ):
        with pytest.raises(FileExistsError, match=r"ksdmin.resume\(path, problem\); or delete"):
            call()
    assert saved.read_bytes() == before


def test_another_problem(saved):
    refused(
        saved, "have the data or the function changed",
        ksdmin.as_problem(lambda x: rosen(x) + x[0], jac=rosen_der),
    )  # fmt: skip
    refused(
        saved, "with a FunctionProblem, not with a DifferencedProblem", ksdmin.as_problem(rosen)
    )
    refused(saved, "has None|1 samples", runs.samples()["fun"])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"like": np.zeros(3)}, "4 unknowns, the problem has 3"),
        ({"like": np.zeros(4, "f4")}, "is in float64, the problem in float32"),
        ({"options": {"krylov_dim": 3}}, "option krylov_dim: a saved run continues"),
        ({"options": {"maxitre": 3}}, r"unknown 'maxitre' \(did you mean 'maxiter'"),
    ],
)
def test_what_does_not_fit(saved, given, match):
    refused(saved, match, **given)


def test_a_function_in_place_of_a_problem(saved):
    refused(saved, "as_problem", rosen, error=TypeError)


def test_a_file_or_folder_that_is_not_there(path):
    with pytest.raises(FileNotFoundError):
        ksdmin.resume(path, ksdmin.as_problem(rosen))
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        ksdmin.minimize(rosen, runs.X0, options={"checkpoint": path / "none" / "run.ksd"})


# Disks that fail


def test_a_disk_that_is_full_in_mid_run(path, monkeypatch):
    own, calls = checkpoint_file._write_all, []

    def full(file, header, content):
        calls.append(file)
        if len(calls) > 3:
            file.write(b"some of it")
            raise OSError(28, "No space left on device")
        own(file, header, content)

    monkeypatch.setattr(checkpoint_file, "_write_all", full)
    problem = ksdmin.as_problem(rosen, jac=rosen_der)
    options = {"checkpoint": path, "checkpoint_every": 1}
    with pytest.warns(OptimizeWarning, match="No space left on device") as caught:
        res = ksdmin.minimize(problem, runs.X0, options=options)
    assert len(caught) == 1  # said once
    assert caught[0].filename == __file__
    assert res.success
    assert len(calls) > 6
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]  # no rubbish
    monkeypatch.setattr(checkpoint_file, "_write_all", own)
    assert ksdmin.Solver.load(path, problem).result().nit == 2  # the last one that fitted
    assert_same(ksdmin.resume(path, problem), ksdmin.minimize(problem, runs.X0))


def test_a_disk_that_is_full_at_the_start(path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_file, "_write_all", full)
    with pytest.raises(OSError, match="No space left"):
        ksdmin.minimize(rosen, runs.X0, jac=rosen_der, options={"checkpoint": path})


def test_a_file_that_was_exchanged_in_mid_run(path):
    def callback(intermediate_result):
        if intermediate_result.nit == 3:
            path.write_bytes(b"something of value")

    options = {"checkpoint": path, "checkpoint_every": 1}
    with pytest.warns(OptimizeWarning, match="not a checkpoint"):
        res = ksdmin.minimize(rosen, runs.X0, jac=rosen_der, callback=callback, options=options)
    assert res.status == Status.CONVERGED
    assert path.read_bytes() == b"something of value"


def test_no_code_of_a_file_is_run(saved, monkeypatch):
    """Nothing in it is a pickle."""
    import pickle

    def refuse(*args, **kwargs):
        raise AssertionError("a pickle")

    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, refuse)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ksdmin.resume(saved, ksdmin.as_problem(rosen, jac=rosen_der), options={"maxiter": 9})
