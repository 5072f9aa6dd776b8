"""The benchmarks' tables and figures, from the committed results alone."""

import re
from pathlib import Path

import benchmark_figures
from tables import folded, markdown, parsed

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "examples/benchmarks/results"
COSTS = ("passes / L-BFGS-B", "seconds / L-BFGS-B")
COLUMNS = ("passes / L-BFGS-B 1e-06", "processor / L-BFGS-B 1e-06")  # other work disturbs wall time
COLLECTIONS = {
    "s2mpj": "unconstrained, CUTEst",
    "s2mpj-bounds": "with bounds, CUTEst",
    "classic": "classic test functions",
    "classic-large": "the same, n = 9996",
}


def rows_of(collection):
    """The first table of a collection: {method: {column: cell}}, and its title."""
    lines = (RESULTS / "scipy" / collection / "table.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| method"))
    header, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines[start : lines.index("", start)]
    ]
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}, lines[0].strip("*")


def link(path, label):
    target = f"../{path.relative_to(ROOT)}"
    return f"{{download}}`{label} <{target}>`" if path.suffix == ".md" else f"[{label}]({target})"


def decision():
    """KSD and L-BFGS-B in numbers, a line a collection."""
    lines = []
    for collection, about in COLLECTIONS.items():
        rows, title = rows_of(collection)
        problems = re.search(r"(\d+) problems", title).group(1)
        ksd, default, tight = rows["ksd"], rows["L-BFGS-B"], rows["L-BFGS-B, ftol=0"]
        time = next(name for name in tight if name.startswith("time"))
        source = link(RESULTS / "scipy" / collection / "table.md", about)
        lines.append(
            [
                source,
                problems,
                f"{ksd['solved by gradient']} / {default['solved by gradient']} / "
                f"{tight['solved by gradient']}",
                f"{ksd['false successes']} / {default['false successes']} / "
                f"{tight['false successes']}",
                tight["work, median"],
                tight[time],
            ]
        )
    header = ["collection", "problems", "solved", "false successes", "work", "seconds"]
    return markdown(header, lines)


def collection(name):
    """A collection: the result, its profiles, and all tables, folded."""
    folder = RESULTS / "scipy" / name
    text = (folder / "table.md").read_text()
    figures = [
        f"![Performance profiles, {name}, solved by {kind}](../{path.relative_to(ROOT)})"
        for kind in ("gradient", "value")
        if (path := folder / f"profiles-{kind}.svg").exists()
    ]
    runs = ", ".join(link(path, path.stem) for path in sorted(folder.glob("*.json")))
    tables = folded("All methods in numbers", f"{text}\n\nRuns: {runs}.")
    return "\n\n".join([solved(name), *figures[:1], tables, *map(by_value, figures[1:])])


def by_value(figure):
    return folded("Profiles of the problems solved by value", figure)


def solved(name):
    """How many problems KSD and the best known of the others solve, and claim to."""
    rows, title = rows_of(name)
    problems = re.search(r"(\d+) problems", title).group(1)
    ksd, default, tight = (rows[m] for m in ("ksd", "L-BFGS-B", "L-BFGS-B, ftol=0"))
    column = "solved by gradient"
    return (
        f"**KSD solves {ksd[column]} of {problems} problems, L-BFGS-B {default[column]}, or "
        f"{tight[column]} with `ftol=0`. False successes: {ksd['false successes']}, "
        f"{default['false successes']} and {tight['false successes']}.** Of work, KSD takes "
        f"{tight['work, median']} times that of the latter, in the median."
    )


def sums_of_losses():
    """What KSD needs of L-BFGS-B's passes and seconds on each set; tables folded."""
    path = RESULTS / "regression" / "table.md"
    passes, ratios, spending, _, origin = path.read_text().strip().split("\n\n")
    groups, rows = {}, {row.pop("ratio of ksd's"): row for row in parsed(ratios)}
    summary = [rows.pop(name) for name in ("**median**", "**worst**")]
    for name, row in rows.items():
        of_set = groups.setdefault(name.split()[0], {cost: [] for cost in COSTS})
        for cost, column in zip(COSTS, COLUMNS, strict=True):
            of_set[cost].append(float(row[column]))
    figure = benchmark_figures.ratios("sums", groups, COSTS)
    return "\n\n".join(
        [
            in_short(*summary, len(rows)),
            f"![KSD's share of L-BFGS-B's passes and seconds, by data set]({figure})",
            folded("Ratios, also to Newton-CG and trust-krylov", ratios),
            folded("All passes", f"{passes}\n\n{spending}"),
            f"{origin}. Runs: {runs_of(path.parent)}.",
        ]
    )


def in_short(median, worst, problems):
    """The two rows of the table that sum it up."""
    middle, most = ([float(row[column]) for column in COLUMNS] for row in (median, worst))
    return (
        f"**KSD takes {middle[0]:.0%} of L-BFGS-B's passes and {middle[1]:.0%} of its "
        "seconds, the median of "
        f"{problems} problems; at worst {most[0]:.0%} and {most[1]:.0%}.**"
    )


def other_losses():
    """The same on forty more sets, half of them set aside from all tuning."""
    path = RESULTS / "losses" / "table.md"
    by_kind, *details = path.read_text().strip().split("\n\n")
    rows = {row["ksd / L-BFGS-B to 1e-06"].strip("*"): row for row in parsed(by_kind)}
    kinds = {kind.split(", ")[1]: row for kind, row in rows.items() if "set-aside" in kind}
    aside = kinds.pop("all")
    figure = benchmark_figures.ratios("losses", {k: of_kind(r) for k, r in kinds.items()}, COSTS)
    return "\n\n".join(
        [
            "**On sets that nothing was tuned on, KSD takes "
            f"{float(aside['passes, median']):.0%} of L-BFGS-B's "
            f"passes and {float(aside['seconds, median']):.0%} of its seconds in the median of "
            f"{aside['problems']} problems; at worst {aside['worst']} times the passes and "
            f"{aside['worst 2']} "
            f"times the seconds.** {ahead_and_behind(kinds)}",
            "![Median and worst share of L-BFGS-B's passes and seconds, by kind of "
            f"data]({figure})",
            folded("By kind of data", by_kind),
            folded("Every set", "\n\n".join(details)),
            f"The dots are median and worst of a kind. Runs: {runs_of(path.parent)}.",
        ]
    )


def of_kind(row):
    """Median and worst of both costs."""
    columns = [("passes, median", "worst"), ("seconds, median", "worst 2")]
    return {cost: [float(row[c]) for c in of] for cost, of in zip(COSTS, columns, strict=True)}


def ahead_and_behind(kinds):
    """By the median of the passes."""
    named = {True: [], False: []}
    for kind, row in kinds.items():
        named[float(row["passes, median"]) < 1].append(kind)
    if not named[False]:
        return "In passes it is ahead on every kind."
    return (
        f"In passes it is ahead on {', '.join(named[True])}; behind on {', '.join(named[False])}."
    )


def many_samples():
    """Sums of many samples, in means; the table folded."""
    path = RESULTS / "many_samples" / "table.md"
    table, *means, origin = path.read_text().strip().split("\n\n")
    shares = dict(re.findall(r"^ksd / L-BFGS-B, (\w+): ([\d.]+)", "\n".join(means), re.MULTILINE))
    return "\n\n".join(
        [
            f"**KSD takes {float(shares['passes']):.0%} of L-BFGS-B's passes and "
            f"{float(shares['seconds']):.0%} of its seconds in the mean.**",
            folded("Every problem, and the means", "\n\n".join([table, *means])),
            f"{origin}. Runs: {runs_of(path.parent)}.",
        ]
    )


def cheap_functions():
    """Seconds where a function costs next to nothing, against the number of unknowns."""
    path = RESULTS / "seconds.md"
    parts = path.read_text().split("\n\n")
    begin = parts.index("**cheap**")
    summary, rows = (parsed(part) for part in parts[begin + 1 : begin + 3])
    aside = next(row for row in summary if row["problems"] == "aside")
    points = {"tuned on": [], "set aside": []}
    for row in rows:
        if row["ratio"]:
            series = "tuned on" if row["half"] == "tuned" else "set aside"
            points[series].append((int(row["n"]), float(row["ratio"])))
    figure = benchmark_figures.against_size("cheap", points, "KSD's seconds / the best other's")
    return "\n\n".join(
        [
            f"**KSD takes {aside['median']} times the seconds of the best of the three, the "
            "median of "
            f"{aside['compared'].split('/')[0]} problems set aside from all tuning; at worst "
            f"{aside['worst']} times.** "
            "It approaches them as the number of unknowns grows. For a function that costs "
            "microseconds, take L-BFGS-B.",
            "![KSD's seconds over the best other method's, against the number of "
            f"unknowns]({figure})",
            folded("Every problem", "\n\n".join(parts)),
        ]
    )


def least_squares():
    """Least squares beside SciPy's methods."""
    return (RESULTS / "least_squares.md").read_text().strip()


def bundle_adjustment():
    """Sparse and structured least squares beside trf with lsmr."""
    return (RESULTS / "bundle_adjustment.md").read_text().strip()


def growth():
    """What KSD's own algebra takes as n and K grow, and the memory of a run."""
    text = (RESULTS / "growth.md").read_text().strip()
    by_n = {row["n"]: row["K = 20"] for row in parsed(text.split("\n\n")[1])}
    return (
        f"**With K = 20 it takes {by_n['10,000']} ns for n = 10,000 and {by_n['1,000,000']} ns for "
        "n = 1,000,000, where the vectors no longer fit into the processor's cache: it is linear "
        f"in n.**\n\n{folded('Every n and K, and memory', text)}"
    )


def logistic():
    """Beside scikit-learn's solvers."""
    path = RESULTS / "logistic.md"
    every, halves, *rest = path.read_text().strip().split("\n\n")
    aside = {row["solver"]: row for row in parsed(halves) if row["half"] == "held out"}
    plain, torch = aside["ksd"], aside["ksd, from_torch"]
    return "\n\n".join(
        [
            f"**With NumPy functions KSD takes {plain['median ratio']} times the seconds of "
            "the best of scikit-learn's "
            f"four solvers in the median of the problems held out, at worst {plain['worst']}; "
            "through `from_torch`, "
            f"{torch['median ratio']} and {torch['worst']}.** It is ahead where there are "
            "many samples; the small "
            "problems take milliseconds, which are its own.",
            folded("Every problem, in milliseconds", "\n\n".join([every, halves, *rest])),
        ]
    )


def runs_of(folder):
    return ", ".join(link(run, run.stem) for run in sorted(folder.glob("*.json")))
