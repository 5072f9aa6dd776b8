"""The choices that the paper leaves open, one at a time, on a small auto-encoder.

    python -m examples.paper.ablations run      # 20 minutes on one core; what is there stays
    python -m examples.paper.ablations table

Once from the paper's configuration and once from today's defaults. CURVES at 14x14 pixels, 2,000 of
them, 196-60-20-6 and back; the first weights and the draws have the seed. Training errors (squared,
summed over pixels, as in the paper) are compared after equal passes over the samples and after
equal processor seconds: half of what the unchanged configuration takes for these passes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from examples.data import curves
from examples.data.splits import Splits, images
from examples.harness.drawing import pyplot, saved
from examples.harness.net_training.krylov_methods import train_as_in_paper, train_by_ksd
from examples.harness.net_training.method_interface import Settings
from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.net_training.tasks import AUTO_ENCODING
from examples.harness.net_training.training import DeviceData, Training, load_libraries
from examples.harness.provenance import provenance
from examples.harness.store import Run, Store
from examples.harness.tables import markdown, origins
from examples.paper.table1_networks import auto_encoder, initialise_sparsely
from ksdmin._ksd.presets import PRESETS, absolute, floored

RESULT = Path(__file__).parent / "results" / "ablations" / "curves-14x14.json"
IDENTITY = ("choice", "seed")
COUNTS = (2_000, 500)  # to train on, to test on
HIDDEN, L2, K = (60, 20, 6), 2e-5, 20
PASSES = 300
SEEDS = (0, 1, 2)
CONFIGURATIONS = {"paper": "as printed in the paper", "default": "today's defaults"}
SPECTRA = {"absolute": absolute, "floored": floored}
COLOURS = {"paper": "tab:cyan", "default": "tab:blue"}


@dataclass(frozen=True)
class Choice:
    """A configuration with one choice changed.

    Attributes
    ----------
    configuration : {"paper", "default"}
        What is changed.
    about, value : str
        The choice, in words; both empty where nothing is changed.
    options : mapping
        Of KSD, "subsets" among them.
    krylov_dim : int
        The paper's K, which its set sizes follow.
    precond, curvature : str
        The preconditioner, "none" for none; the matrix.
    preset : mapping
        What no option has: fields of the preset, a function by its name.
    """

    configuration: str
    about: str = ""
    value: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    krylov_dim: int = K
    precond: str = ""
    curvature: str = "gauss-newton"
    preset: Mapping[str, Any] = field(default_factory=dict)

    def train(self, training: Training, recorder: PointRecorder) -> None:
        """A run."""
        usual = "diagonal" if self.configuration == "paper" else "auto"
        precond = {"": usual, "none": None}.get(self.precond, self.precond)
        method = train_as_in_paper if self.configuration == "paper" else train_by_ksd
        settings = Settings(
            curvature=self.curvature,
            precision="highest",
            krylov_dim=self.krylov_dim,
            hf_share=1.0,
            hf_damping=1.0,
            options=self.options,
        )
        with self._preset():
            method(precond)(training, recorder, settings)

    def _preset(self) -> AbstractContextManager[Any]:
        """What no option has is changed in the preset."""
        fields = {name: SPECTRA.get(value, value) for name, value in self.preset.items()}
        changed = replace(PRESETS[self.configuration], **fields)
        return patch.dict(PRESETS, {self.configuration: changed})


def choices() -> Iterator[Choice]:
    """All of them, the unchanged configurations first."""
    for configuration in CONFIGURATIONS:
        yield Choice(configuration)
    for configuration in CONFIGURATIONS:
        yield from changes_of(configuration)


def changes_of(configuration: str) -> Iterator[Choice]:
    """One choice changed at a time."""
    paper = configuration == "paper"
    for dim in (5, 10, 40, 80, 200) if paper else (5, 10, 20, 40, 80, 200):
        own = {"krylov_dim": dim} if paper else {"options": {"krylov_dim": dim}}
        yield Choice(configuration, "K", f"{dim}", **own)
    for memory in (0, 2, 5, 10) if paper else (0, 1, 2, 10):
        yield with_options(configuration, "previous directions", f"{memory}", memory=memory)
    if not paper:
        yield with_options(configuration, "pairs of the quasi-Newton model", "0", pairs=0)
    for floor in (1e-2, 1e-3, 1e-6, 1e-8):
        yield with_options(configuration, "floor", f"{floor:g}", floor=floor)
    yield Choice(configuration, "preconditioner", "none", precond="none")
    if paper:  # a power of the diagonal, which this preset has, would rule factors out
        without = {"diagonal_power": None}
        changed = {"precond": "kronecker", "options": without, "preset": without}
    else:
        changed = {"precond": "diagonal"}
    yield Choice(configuration, "preconditioner", changed["precond"], **changed)
    for curvature in ("fisher", "empirical-fisher"):
        yield Choice(configuration, "matrix", curvature, curvature=curvature)
    for share in (1 / 40, 1 / 10, 1 / 5, 1.0):
        sizes = {"curvature": share, "search": share, "disjoint": share < 1}
        yield with_options(configuration, "B and C, share each", f"{share:g}", subsets=sizes)
    for spectrum, words in {"absolute": "absolute eigenvalues", "floored": "floored ones"}.items():
        value = f"hessian, {words}"
        yield Choice(
            configuration, "matrix", value, curvature="hessian", preset={"spectrum": spectrum}
        )


def with_options(configuration: str, about: str, value: str, **options: Any) -> Choice:
    """A choice that is an option."""
    return Choice(configuration, about, value, options=options)


@cache
def data() -> DeviceData:
    """The curves, halved in both directions."""
    parts = [curves.generate(count, np.random.default_rng(count)) for count in COUNTS]
    halved = (p.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) for p in parts)
    train, test = map(images, halved)
    return DeviceData.of(Splits(train, test, held_out=train[:0]), torch.device("cpu"))


def perform(choice: Choice, seed: int, passes: float = PASSES) -> Run:
    """One run."""
    net = auto_encoder(196, HIDDEN)
    initialise_sparsely(net, seed)
    training = Training(net, AUTO_ENCODING, data(), L2, seed)
    load_libraries(training)
    recorder = PointRecorder(math.inf, passes, now=time.process_time)
    choice.train(training, recorder)
    trace = recorder.trace(training.assess)
    kept = {
        name: trace[name] for name in ("seconds", "passes", "iterations", "value", "train", "test")
    }
    return {
        "choice": asdict(choice),
        "seed": seed,
        **provenance("torch"),
        "trace": kept,
    }


def run(store: Store, seeds: Sequence[int]) -> None:
    """Every choice that is not there yet, seed by seed."""
    torch.set_num_threads(1)
    for seed in seeds:
        for choice in choices():
            if store.find(choice=asdict(choice), seed=seed) is None:
                found = perform(choice, seed)
                store.add(found)
                last = {name: column[-1] for name, column in found["trace"].items()}
                print(choice, seed, last, flush=True)


# --- What came of it ---


@dataclass(frozen=True)
class Effect:
    """What a choice does to the training error: its ratio to that without the choice."""

    configuration: str
    about: str
    value: str
    by_passes: float
    by_seconds: float
    least: float
    most: float


def effects(runs: Iterable[Run]) -> list[Effect]:
    """Geometric means over the seeds, in the order of the choices."""
    by_choice: dict[tuple[str, str, str], dict[int, Run]] = {}
    for one in runs:
        made = one["choice"]
        key = made["configuration"], made["about"], made["value"]
        by_choice.setdefault(key, {})[one["seed"]] = one
    found = []
    for (configuration, about, value), own in by_choice.items():
        if not about:
            continue
        usual = by_choice[configuration, "", ""]
        pairs = [(own[seed]["trace"], usual[seed]["trace"]) for seed in own if seed in usual]
        logs = [log_ratio(ours, theirs, "passes", PASSES) for ours, theirs in pairs]
        timed = [
            log_ratio(ours, theirs, "seconds", theirs["seconds"][-1] / 2) for ours, theirs in pairs
        ]
        found.append(
            Effect(
                configuration,
                about,
                value,
                math.exp(fmean(logs)),
                math.exp(fmean(timed)),
                math.exp(min(logs)),
                math.exp(max(logs)),
            )
        )
    return found


def log_ratio(ours: Mapping, theirs: Mapping, column: str, at: float) -> float:
    """Of the training errors, where so much of `column` has been spent."""
    return math.log(error(ours, column, at) / error(theirs, column, at))


def error(trace: Mapping[str, Sequence[float]], column: str, at: float) -> float:
    """Its logarithm falls evenly between two points; what was reached stays."""
    return math.exp(np.interp(at, trace[column], np.log(trace["train"])))


def has_seconds(store: Store) -> bool:
    """Whether the machine had nothing else to do, so that seconds tell something."""
    return not store.head.get("shared")


def table(store: Store) -> str:
    """One line per choice, both configurations side by side."""
    runs, timed = store.runs, has_seconds(store)
    found = {(e.configuration, e.about, e.value): e for e in effects(runs)}
    names = dict.fromkeys((about, value) for _, about, value in found)
    order = list(dict.fromkeys(about for about, _ in names))
    rows = []
    for about, value in sorted(names, key=lambda name: (order.index(name[0]), place(name[1]))):
        cells = [about, value]
        for configuration in CONFIGURATIONS:
            effect = found.get((configuration, about, value))
            shown = ["", ""] if effect is None else [in_cell(effect), f"{effect.by_seconds:.2f}"]
            cells += shown if timed else shown[:1]
        rows.append(cells)
    header = ["choice", "value"]
    for configuration in CONFIGURATIONS:
        columns = [f"{configuration}: equal passes", f"{configuration}: equal seconds"]
        header += columns if timed else columns[:1]
    return markdown(header, rows) + f"\n\n{note(runs, timed)}"


def in_words(runs: Sequence[Run], shown: int = 3) -> str:
    """The choices that change most for equal passes, for worse and for better."""
    sentences = []
    for name, words in CONFIGURATIONS.items():
        mine = sorted((e for e in effects(runs) if e.configuration == name), key=by_effect)
        better = [e for e in mine if e.by_passes < 1][:shown]
        worse = [e for e in reversed(mine) if e.by_passes > 1][:shown]
        sentences.append(
            f"**KSD {words}**, for equal passes: most is lost with {listed(worse)}; most is "
            f"gained with {listed(better)}."
        )
    return "\n\n".join(sentences)


def by_effect(effect: Effect) -> float:
    return effect.by_passes


def listed(found: Sequence[Effect]) -> str:
    """Each choice, with the error's ratio."""
    named = [f"{e.about} {e.value} ({e.by_passes:.2f} times the error)" for e in found]
    return ", ".join(named) or "nothing"


def place(value: str) -> float:
    """Numbers by their size, words as they come."""
    try:
        return float(value)
    except ValueError:
        return math.inf


def in_cell(effect: Effect) -> str:
    return f"{effect.by_passes:.2f} [{effect.least:.2f}, {effect.most:.2f}]"


def note(runs: Sequence[Run], timed: bool) -> str:
    """How to read the table, and where it was measured."""
    usual = [one for one in runs if not one["choice"]["about"]]
    ends = {
        name: [one["trace"] for one in usual if one["choice"]["configuration"] == name]
        for name in CONFIGURATIONS
    }
    words = "; ".join(
        f"{CONFIGURATIONS[name]} {fmean(error(t, 'passes', PASSES) for t in traces):.3g}"
        + (f" ({fmean(t['seconds'][-1] for t in traces):.1f} s)" if timed else "")
        for name, traces in ends.items()
        if traces
    )
    seeds = len({one["seed"] for one in runs})
    clock = (
        ", and after half of the processor seconds that the unchanged configuration takes for these"
    )
    return (
        "The training error with a choice, over that without it: above 1 it is worse. Geometric "
        f"means over {seeds} seeds [least, most], after {PASSES} passes{clock if timed else ''}. "
        f"Unchanged, the error is then {words}. "
        f"Measured on {origins(runs, '{hardware}, {date}, commit {commit}')}."
        + ("" if timed else " The machine was shared: seconds would say little.")
    )


def draw(store: Store, path: Path) -> Path:
    """A point for each choice, on a logarithmic scale."""
    plt = pyplot()
    found, timed = effects(store.runs), has_seconds(store)
    order = list(dict.fromkeys(e.about for e in found))
    names = sorted(
        {(e.about, e.value) for e in found}, key=lambda n: (order.index(n[0]), place(n[1]), n[1])
    )
    figure, panel = plt.subplots(figsize=(9, 0.24 * len(names) + 1.2), layout="constrained")
    for name, words in CONFIGURATIONS.items():
        mine = [e for e in found if e.configuration == name]
        at = [names.index((e.about, e.value)) for e in mine]
        look = {"color": COLOURS[name], "zorder": 3}
        panel.scatter([e.by_passes for e in mine], at, label=f"{words}: equal passes", **look)
        if timed:
            hollow = {"facecolors": "none", "edgecolors": COLOURS[name]}
            label = f"{words}: equal processor seconds"
            panel.scatter([e.by_seconds for e in mine], at, label=label, **hollow)
    panel.axvline(1, color="gray", linewidth=0.8)
    panel.set_yticks(range(len(names)), [f"{about}: {value}" for about, value in names])
    panel.invert_yaxis()
    panel.set(xscale="log", xlabel="training error, over that of the unchanged configuration")
    panel.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    return saved(plt, figure, path)


def main(given: Sequence[str] | None = None) -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("--seed", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--shared", action="store_true", help="other programs run: no seconds")
    parser.add_argument("--out", type=Path, default=RESULT, help="JSON, which runs are added to")
    args = parser.parse_args(given)
    store = Store(args.out, IDENTITY)
    if args.command == "run":
        if args.shared and has_seconds(store):
            store.replace(store.runs, {"shared": True})
        run(store, args.seed)
    else:
        print(table(store))


if __name__ == "__main__":
    main()
