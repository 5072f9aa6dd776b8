"""All committed results: how old they are, and the commands that measure and print them again.

    python -m examples.benchmarks.everything list                # what there is, and since when
    python -m examples.benchmarks.everything draw                # tables and pictures, in minutes
    python -m examples.benchmarks.everything measure --on cpu    # all of it: days
    python -m examples.benchmarks.everything measure growth seconds

`draw` makes the tables and pictures of the results as they are committed; the site makes its own
when it is built. `measure` runs the commands one after another. Each begins without its old
results, which are in git. Commands that fail are named at the end. `--dry-run` prints the commands
only. Data that no package carries come from the folder KSDMIN_DATA. In the list, "behind" counts
the commits to ksdmin since the oldest run of a result.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.harness.tables import markdown

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = "examples/benchmarks"
RESULTS = f"{SCRIPTS}/results"


@dataclass(frozen=True)
class Result:
    """Files that one script makes; all paths are relative to the root of the repository.

    Attributes
    ----------
    name : str
        As the command line has it.
    files : tuple of str
        The patterns of the files.
    measure, draw : tuple of str
        Arguments of python. With "> file", what is printed becomes that file.
    on : {"cpu", "gpu"}
        Where it is measured.
    """

    name: str
    files: tuple[str, ...]
    measure: tuple[str, ...]
    draw: tuple[str, ...] = ()
    on: str = "cpu"

    @property
    def data(self) -> list[Path]:
        """The runs: tables and pictures are made of them."""
        return [path for path in self.paths() if path.suffix == ".json"]

    def paths(self) -> list[Path]:
        """All of the files."""
        return sorted(path for pattern in self.files for path in ROOT.glob(pattern))


def benchmark(name: str, *runs: str, table: str = "") -> Result:
    """A script of this folder, which knows where its results are."""
    script = f"{SCRIPTS}/{name}.py"
    measure = tuple(f"{script} {run}".strip() for run in runs or ("",))
    files = f"{RESULTS}/{name}.*", f"{RESULTS}/{name}/*"
    return Result(name, files, measure, (f"{script} {table}",) if table else ())


def of_device(name: str, on: str) -> Result:
    """A script of this folder that is told where its results go."""
    file = f"{RESULTS}/{name}_{'h200' if on == 'gpu' else on}.json"
    return Result(f"{name}_{on}", (file,), (f"{SCRIPTS}/{name}.py --out {file}",), on=on)


def ablation(name: str, kinds: str) -> Result:
    """Every rule off and every constant changed, on problems of these kinds."""
    file, command = f"{RESULTS}/{name}", "-m examples.benchmarks.ablation"
    measure = f"{command} --kinds {kinds} --out {file}.json"
    draw = f"{command} --table --out {file}.json > {file}.md"
    return Result(name, (f"{file}.*",), (measure,), (draw,))


def collection(name: str) -> Result:
    """SciPy's methods on a collection of plain functions."""
    script, of = f"{SCRIPTS}/scipy_methods.py", f"--collection {name}"
    draw = f"{script} table {of}", f"{script} profiles {of}"
    return Result(name, (f"{RESULTS}/scipy/{name}/*",), (f"{script} run {of} --again",), draw)


def paper(name: str) -> Result:
    """An experiment of the paper."""
    run = f"-m examples.paper run {name}"
    measure = f"{run} --method ksd hf --seed 0 1 2", f"{run} --method ksd-paper torch-lbfgs adam"
    return Result(name, (f"examples/paper/results/{name}.json",), measure, on="gpu")


def physics(name: str) -> Result:
    """An equation for a net."""
    measure = f"-m examples.physics all --problems {name}"
    return Result(name, (f"examples/physics/results/{name}.json",), (measure,), on="gpu")


def nets_of_today(machine: str, on: str, arguments: str) -> Result:
    """Nets of today, those for this machine."""
    file = f"{RESULTS}/nets_of_today_{machine}.json"
    measure = f"-m examples.benchmarks.nets_of_today run --out {file} {arguments}"
    return Result(f"nets_of_today_{machine}", (file,), (measure,), on=on)


SMALL_NETS = "small-conv small-residual small-lstm small-transformer"
EQUATIONS = (
    *("convection", "reaction", "wave", "poisson-257", "poisson-9873", "poisson-116097"),
    *("burgers", "burgers-100000", "burgers-periodic", "kdv", "precision-fit"),
    *("poisson-5d", "poisson-10d", "heat-4d", "kuramoto-sivashinsky"),
    *("helmholtz-200000", "dispersive-999361"),
)
NETS = (
    *("curves", "mnist-ae", "mnist-cl", "mnist-cl-pt", "spoken-digits"),
    *("starcraft", "starcraft-linear", "adding-100", "order-100", "curves-pt", "mnist-ae-pt"),
)
ALL = (
    Result(
        "pictures",
        ("docs/_static/sum-of-losses.json",),
        ("-m examples.pictures measure",),
        ("-m examples.pictures",),
    ),
    benchmark("regression", table="--table"),
    benchmark("losses", table="--table"),
    benchmark("many_samples", table="--table"),
    benchmark("logistic", "run", "run --held-out", table=f"table > {RESULTS}/logistic.md"),
    benchmark("least_squares", table="--table"),
    benchmark("bundle_adjustment", table="--table"),
    benchmark("seconds", "", "--collection s2mpj", table=f"--table > {RESULTS}/seconds.md"),
    benchmark("growth", table=f"--table > {RESULTS}/growth.md"),
    benchmark("kinds"),
    benchmark("jax_compilations", "", "--set-aside"),
    *(collection(name) for name in ("s2mpj", "s2mpj-bounds", "classic", "classic-large")),
    ablation("ablation", "plain sums"),
    ablation("ablation_nets", "nets"),
    Result(
        "choices",
        ("examples/paper/results/ablations/*.json",),
        ("-m examples.paper.ablations run",),
    ),
    Result(
        "weak_scaling",
        (f"{RESULTS}/weak_scaling.json",),
        ("-m examples.benchmarks.weak_scaling --processes 1 2 4",),
    ),
    *(of_device(name, "cpu") for name in ("torch_products", "streamed_data")),
    *(of_device(name, "gpu") for name in ("torch_products", "streamed_data", "product_cost")),
    *(of_device(name, "gpu") for name in ("own_share", "watching_cost")),
    nets_of_today("h200", "gpu", "conv causal perceptron lstm residual transformer aside"),
    nets_of_today("cpu", "cpu", f"{SMALL_NETS} --seeds 0 1 2 --device cpu --threads 2"),
    *(paper(name) for name in NETS),
    *(physics(name) for name in EQUATIONS),
)


# ------------------------------------------------------------------------------
# How old results are


def commits_in(value: Any) -> Iterator[str]:
    """All that stands under "commit" in a file of results."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "commit" and isinstance(inner, str):
                yield inner.removesuffix("-dirty")
            else:
                yield from commits_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from commits_in(inner)


def behind(commit: str) -> int | None:
    """The commits to ksdmin since then; None where git does not know it."""
    command = ["git", "rev-list", "--count", f"{commit}..HEAD", "--", "ksdmin"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return int(done.stdout) if done.returncode == 0 else None


def row(result: Result) -> list[str]:
    """A result in the list: its name, its age, its machine, its commands."""
    commits = {
        commit for path in result.data for commit in commits_in(json.loads(path.read_text()))
    }
    known = {commit: age for commit in commits if (age := behind(commit)) is not None}
    oldest = max(known, key=lambda commit: known[commit], default="")
    age = str(known[oldest]) if known else "not known"
    return [result.name, oldest, age, result.on, "; ".join(result.measure)]


# ------------------------------------------------------------------------------
# Running the commands


def run(command: str) -> bool:
    """Whether a command ends well."""
    arguments, _, file = command.partition(" > ")
    done = subprocess.run(
        [sys.executable, *shlex.split(arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE if file else None,
        text=True,
    )
    if file and done.returncode == 0:
        (ROOT / file).write_text(done.stdout)
    return done.returncode == 0


def measure(result: Result, dry_run: bool) -> list[str]:
    """Measure from nothing, and draw; the commands that failed."""
    if not dry_run:
        for path in result.data:
            path.unlink()
    return run_all([*result.measure, *result.draw], dry_run)


def run_all(commands: Sequence[str], dry_run: bool) -> list[str]:
    """Print and run commands; those that failed."""
    failed = []
    for command in commands:
        print(f"python {command}", flush=True)
        if not dry_run and not run(command):
            failed.append(command)
    return failed


def chosen(names: Sequence[str], on: str | None) -> list[Result]:
    """The results of these names, or all; those of a machine."""
    return [
        result for result in ALL if (not names or result.name in names) and on in (None, result.on)
    ]


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["list", "draw", "measure"])
    parser.add_argument("names", nargs="*", metavar="name", help="of results; all by default")
    parser.add_argument("--on", choices=["cpu", "gpu"], help="only what is measured there")
    parser.add_argument("--dry-run", action="store_true", help="print the commands only")
    args = parser.parse_args(given)
    if unknown := set(args.names) - {result.name for result in ALL}:
        parser.error(f"no such result: {', '.join(sorted(unknown))}")
    results = chosen(args.names, args.on)
    failed = []
    if args.command == "list":
        print(markdown(["result", "oldest commit", "behind", "on", "python"], map(row, results)))
    elif args.command == "draw":
        failed = run_all([command for result in results for command in result.draw], args.dry_run)
    else:
        for result in results:
            failed += measure(result, args.dry_run)
    if failed:
        sys.exit("failed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
