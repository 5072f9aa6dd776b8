"""The page of experiments: what the commands of examples/paper make of its committed runs.

For each row of the paper: the result in words, the figure, and the table, folded.
"""

import re
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median

from tables import folded, warn

from examples.harness.store import Store
from examples.harness.tables import markdown
from examples.paper import ablations
from examples.paper.figures import METHODS, both_starts
from examples.paper.published_rows import ROWS
from examples.paper.recurrent_rows import RECURRENT, SOLVED
from examples.paper.run_config import rows
from examples.paper.seed_series import best_series, load_runs
from examples.paper.table2 import hf_for, ratio

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "examples/paper/results"
FIGURES = ROOT / "docs/generated/paper"
NOTHING = """:::{note}
This checkout holds no results of the experiments: examples/paper/results has no JSON file. The page
fills itself from there when the site is built.
:::"""
NAMES = {
    "ksd": "KSD",
    "hf": "HF",
    "torch-lbfgs": "torch's L-BFGS",
    "adam": "Adam",
    "nag": "Nesterov's momentum",
    "lbfgsb": "SciPy's L-BFGS-B",
    "ncg": "SciPy's CG",
    "ksd-paper": "KSD as printed in the paper",
    "ksd-diagonal": "KSD with a diagonal",
    "ksd-krylov": "KSD without Gauss-Newton steps",
    "hf-kronecker": "HF with Kronecker factors",
    "muon": "Muon",
}
LONG_LAGS = """## Recurrent nets

The paper ends with recurrent nets: KSD trains them without structural damping of the Gauss-Newton
matrix. Here are two problems of Hochreiter and Schmidhuber (1997) for a net of 100 tanh units
(`torch.nn.RNN`), with the start of Sutskever et al. (2013): 15 connections to a unit, of spectral
radius 1.1. In *adding*, two numbers of a sequence are marked, one in its first tenth and one in its
first half. At the end the net has to return 0.5 plus a quarter of their sum, to 0.04. In *temporal
order*, two symbols among noise are X or Y, one in the second tenth and one in the sixth. The net
has to tell the two symbols and their order: four classes. Both problems count as solved if less
than 1% of 10,000 other sequences are wrong. No method has structural damping, not even HF."""
PRE_TRAINING = """## Pre-training

The paper says that pre-training helped HF and KSD on MNIST classification alone, and SGD and
conjugate gradients everywhere. Here are the same rows from both starts. The auto-encoders are
pre-trained, too, layer by layer as restricted Boltzmann machines; the decoder mirrors the
encoder."""
DIFFERENCES = """## Where the numbers differ from the paper's

Training and CV errors of the paper's Table 2, and the means of the runs above. Both end a run by
held-out data. The paper's runs took as long as that needed, and it has no seconds; ours have at
most the seconds of each row."""
REASONS = {
    "curves": "CURVES is no longer available and was made again from its recipe. KSD as "
    "printed needs more seconds: a step takes a gradient on all samples and 80 products or more.",
    "mnist-ae": "The seconds, and l2: with 3e-4 in place of 1e-4, KSD has less CV error and more "
    "training error. Here 5,000 of the 60,000 images are held out.",
    "mnist-cl": "Little: HF and KSD are close to the paper's.",
    "mnist-cl-pt": "Pre-training leaves room for choices (here contrastive divergence with one "
    "step), and so does l2, which the paper does not give: held-out data chose 1e-7 for KSD.",
    "spoken-digits": "Other data: Aurora is licensed. The stand-in has 60 states of ten words in "
    "heavy noise, which are harder to tell apart. Compare the methods, not the level.",
    "starcraft": "Other data: the paper's games are not public. These are 904 games, 100 of them "
    "for the test, and no method comes near 5%. Compare the methods, not the level.",
}


def page():
    """All rows, then links to the runs."""
    files = sorted(RESULTS.glob("*.json"))
    if not files:
        return NOTHING
    note, *tables = command("table").split("\n## ")
    command("figures", "--out", str(FIGURES))
    runs = load_runs(RESULTS)
    texts = {text.split("\n", 1)[0].strip(): text for text in tables}
    of_paper = [section(texts[row.title], runs) for row in ROWS.values() if row.title in texts]
    sections = [in_short(runs), *of_paper, differences(runs), *pre_training(runs)]
    sections += long_lags(texts, runs)
    links = ", ".join(f"[{path.name}](../{path.relative_to(ROOT)})" for path in files)
    about = "{download}`README <../examples/paper/README.md>`"
    closing = f"The runs: {links}; how they were made: {about}."
    how_to_read = f"**How to read the tables.** {note.strip()}"
    return "\n\n".join([*sections, "## The runs", how_to_read, closing])


def in_short(runs):
    """On how many of the tasks KSD has HF's errors sooner than HF itself."""
    sooner = {"train": 0, "test": 0}
    names = [name for name in runs if name in ROWS and ROWS[name].beside is None]
    for name in names:
        ksd, hf, _ = compared(runs[name])
        for column in sooner:
            sooner[column] += is_number(share := ratio(ksd, hf, column)) and float(share) < 1
    return (
        f"**On {sooner['train']} of {len(names)} tasks KSD reaches HF's training error "
        f"sooner than HF, on {sooner['test']} its CV error.** The method with the least training "
        "error does not always have the least CV error: each section says which one has it."
    )


def compared(runs):
    """KSD and HF on the same samples and under the same load; all series.

    They have the most seeds; of equals, the newest ones; of these, those alone on the processor.
    """
    series = best_series(runs)
    pairs = [(ksd, hf_for(ksd, series)) for ksd in series if plain(ksd, "ksd")]
    ksd, hf = max(
        (pair for pair in pairs if pair[1]),
        key=lambda pair: (
            min(len(one.runs) for one in pair),
            pair[0].date,
            not pair[0].shared,
        ),
    )
    return ksd, hf, series


def section(text, runs):
    """One row of the paper: heading, result, figure, table."""
    title, table = text.split("\n", 1)
    name = next(name for name, row in rows(small=False).items() if row.title == title.strip())
    words = solved(runs[name]) if name in RECURRENT else in_words(name, runs[name])
    parts = [f"##{'#' * (name in RECURRENT)} {title}", words]
    figure = FIGURES / f"{name}.svg"
    if figure.exists():
        parts.append(f"![{name}: errors over seconds and passes](generated/paper/{figure.name})")
    return "\n\n".join([*parts, folded("All methods, settings and seeds", table.strip())])


def long_lags(texts, runs):
    """The recurrent nets, where there are runs of them."""
    own = [section(texts[row.title], runs) for row in RECURRENT.values() if row.title in texts]
    return [LONG_LAGS, *own] if own else []


def solved(runs):
    """Who has solved a problem of long lags: how many of the seeds, and when."""
    found = []
    for series in best_series(runs):
        traces = [run["trace"] for run in series.runs.values()]
        times = [first_solved(trace) for trace in traces]
        there = [time for time in times if time is not None]
        words = f"{NAMES[series.config['method']]} {len(there)} of {len(times)}"
        if there:
            words += f" (after {median(there):.3g} s, the median)"
        found.append(words)
    return f"**Seeds with which it was solved**, in {seconds_of(runs)} s: {', '.join(found)}."


def first_solved(trace):
    """When the error is below 1% for the first time."""
    times = zip(trace["seconds"], trace["test"], strict=True)
    return next((seconds for seconds, error in times if error < SOLVED), None)


def seconds_of(runs):
    return f"{max(run['config']['seconds'] for run in runs):g}"


def pre_training(runs):
    """The figure of both starts and what it shows, where there are runs of both."""
    figure = FIGURES / "pre-training.svg"
    if not figure.exists():
        return []
    helped = [
        f"{ROWS[name].title}: {', '.join(gainers(errors)) or 'none'}"
        for name, errors in both_starts(runs).items()
    ]
    words = f"**Methods with a lower CV error after pre-training**: {'; '.join(helped)}."
    link = f"![Errors with and without pre-training](generated/paper/{figure.name})"
    return [f"{PRE_TRAINING}\n\n{words}\n\n{link}"]


def gainers(errors):
    return [METHODS[method] for method, (plain, trained) in errors.items() if trained < plain]


def open_choices():
    """For the page of the paper: the choices that it leaves open, one at a time."""
    store = Store(ablations.RESULT, ablations.IDENTITY)
    drawn = ablations.draw(store, FIGURES / "ablations.svg")
    figure = f"![Errors with one choice changed](generated/paper/{drawn.name})"
    parts = [ablations.problem_in_words(), ablations.in_words(store.runs), figure]
    return "\n\n".join([*parts, folded("All choices", ablations.table(store))])


def in_words(name, runs):
    """Where KSD and HF end, how long KSD takes to HF's errors, and who has the least CV error."""
    ksd, hf, series = compared(runs)
    unit = ROWS[name].task.unit
    return " ".join(
        [
            f"{ends('KSD', ksd, unit)}, {ends('HF', hf, unit)}{load(ksd)}.",
            times(ratio(ksd, hf, "train"), "training"),
            times(ratio(ksd, hf, "test"), "CV"),
            best(ksd, series, unit),
            *(f"{ends('HF alone', one, unit)}." for one in series if is_alone(one, hf)),
        ]
    )


def differences(runs):
    """The paper's numbers, ours, and why they differ."""
    header = ("task", "HF, the paper's", "HF", "KSD, the paper's", "as printed", "KSD", "why")
    lines = [difference(name, runs[name]) for name in REASONS if name in runs]
    return f"{DIFFERENCES}\n\n{markdown(header, lines)}"


def difference(name, runs):
    """One row of the paper."""
    row, (ksd, hf, series) = ROWS[name], compared(runs)
    unit, known = row.task.unit, row.published
    printed = next(s for s in series if plain(s, "ksd-paper") and s.shared == ksd.shared)
    ours = [both_errors(one, unit) for one in (hf, printed, ksd)]
    theirs = [f"{train}{unit} / {test}{unit}" for train, test in (known.hf, known.ksd)]
    return [row.title, theirs[0], ours[0], theirs[1], *ours[1:], REASONS[name]]


def both_errors(series, unit):
    """The mean training and CV error of a series."""
    return " / ".join(f"{fmean(series.at_stop(c).values()):.3g}{unit}" for c in ("train", "test"))


def load(series):
    """That runs shared the processor."""
    return ", all with other runs on the same processor" if series.shared else ""


def is_alone(one, hf):
    """Whether a series of HF is the one compared, but with the processor to itself."""
    alike = hf.config["held_out"] == one.config["held_out"]
    return hf.shared and plain(one, "hf") and alike and not one.shared


def plain(series, method):
    return (series.config["method"], series.config["curvature"]) == (method, "gauss-newton")


def ends(name, series, unit):
    """The mean errors of a method, and after how many seconds."""
    train, test, seconds = (fmean(series.at_stop(c).values()) for c in ("train", "test", "seconds"))
    return (
        f"**{name}**: a training error of {train:.3g}{unit} and a CV error of "
        f"{test:.3g}{unit} after "
        f"{seconds:.3g} s"
    )


def times(share, kind):
    """The seconds to HF's error."""
    if not is_number(share):
        return f"KSD does not reach HF's {kind} error."
    return f"KSD reaches HF's {kind} error after {share} of HF's seconds."


def is_number(share):
    """Not a dash, which stands for never."""
    return re.fullmatch(r"[\d.e+-]+", share) is not None


def best(ksd, series, unit):
    """The least CV error among all methods on the same samples, as early stopping finds it."""
    alike = [
        s
        for s in series
        if s.config["held_out"] == ksd.config["held_out"] and s.shared == ksd.shared
    ]
    least = min(alike, key=lambda s: fmean(s.at_stop("test").values()))
    error = f"{fmean(least.at_stop('test').values()):.3g}{unit}"
    curvature = least.config["curvature"]
    other = f" with the {curvature}" if curvature not in (None, "gauss-newton") else ""
    name = NAMES[least.config["method"]]
    return f"The least CV error of all methods is that of {name}{other}, {error}."


def command(*arguments):
    """What ``python -m examples.paper`` prints."""
    ran = subprocess.run(
        [sys.executable, "-m", "examples.paper", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        warn(f"python -m examples.paper {' '.join(arguments)} failed: {ran.stderr}")
    return ran.stdout
