"""The benchmarks' tables and figures, from the committed results alone."""

import re
import statistics
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
# What methods and files of results are called on the site
NAMES = {
    "ksd": "KSD",
    "ksd, gradients only": "KSD without products",
    "ksd, PAPER": "KSD as in the paper",
    "ksd, from_torch": "KSD by from_torch",
    "ksd without newton": "KSD without Newton steps",
    "ksd-paper": "KSD as in the paper",
    "ksd-everything": "KSD with larger first sets",
    "Newton-CG-sum": "Newton-CG on the sum",
    "trust-krylov-sum": "trust-krylov on the sum",
    "optima": "the minima",
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


def scipys_methods():
    """Who solves plain functions and who only says so: all methods, all collections."""
    counts, titles = {}, {}
    for collection, about in COLLECTIONS.items():
        rows, title = rows_of(collection)
        problems = re.search(r"(\d+) problems", title).group(1)
        titles[collection] = f"{about} ({problems})"
        for method, row in rows.items():
            shown = f"{row['solved by gradient']} / {row['false successes']}"
            counts.setdefault(method, {})[collection] = shown
    rows = [
        [NAMES.get(method, method), *(of_it.get(name, "") for name in COLLECTIONS)]
        for method, of_it in counts.items()
    ]
    return "\n\n".join(
        [
            f"**{solved()}**",
            "Problems solved / false successes:",
            markdown(["method", *titles.values()], rows),
            profiles("s2mpj", "gradient"),
            folded("The profiles of the other collections", other_profiles()),
            f"All numbers, also of each half of the problems: {tables_of_collections()}.",
        ]
    )


def solved():
    """How many problems KSD and the best known of the others solve, and claim to."""
    rows, title = rows_of("s2mpj")
    problems = re.search(r"(\d+) problems", title).group(1)
    ksd, default, tight = (rows[m] for m in ("ksd", "L-BFGS-B", "L-BFGS-B, ftol=0"))
    column = "solved by gradient"
    return (
        f"Of {problems} unconstrained CUTEst problems KSD solves {ksd[column]} and L-BFGS-B "
        f"{default[column]}, or {tight[column]} with `ftol=0`. KSD claims "
        f"{ksd['false successes']} false successes, L-BFGS-B {default['false successes']} and "
        f"{tight['false successes']}. KSD takes {tight['work, median']} times the work of "
        "L-BFGS-B with `ftol=0`, the median."
    )


def profiles(name, kind):
    """A figure, where it has been drawn."""
    path = RESULTS / "scipy" / name / f"profiles-{kind}.svg"
    title = f"Performance profiles, {COLLECTIONS[name]}, solved by {kind}"
    return f"![{title}](../{path.relative_to(ROOT)})" if path.exists() else ""


def other_profiles():
    """All but the one that is shown."""
    parts = []
    for name, about in COLLECTIONS.items():
        for kind in ("gradient", "value"):
            if (name, kind) != ("s2mpj", "gradient") and (figure := profiles(name, kind)):
                parts += [f"{about}, solved by {kind}:", figure]
    return "\n\n".join(parts)


def tables_of_collections():
    return ", ".join(
        link(RESULTS / "scipy" / name / "table.md", about) for name, about in COLLECTIONS.items()
    )


def sums_of_losses():
    """What KSD needs of L-BFGS-B's passes and seconds on each set."""
    path = RESULTS / "regression" / "table.md"
    _, ratios, _, _, origin = path.read_text().strip().split("\n\n")
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
            sources(path, "every data set and penalty, also Newton-CG and trust-krylov", origin),
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
    kinds, _ = kinds_of_losses()
    figure = benchmark_figures.ratios("losses", {k: of_kind(r) for k, r in kinds.items()}, COSTS)
    columns = ["passes, median", "worst", "seconds, median", "worst 2", "problems"]
    header = ["kind of data", "passes, median", "passes, worst", "seconds, median"]
    rows = [[kind, *(row[column] for column in columns)] for kind, row in kinds.items()]
    return "\n\n".join(
        [
            f"{headline_of_losses()} {ahead_and_behind(kinds)}",
            "![Median and worst share of L-BFGS-B's passes and seconds, by kind of "
            f"data]({figure})",
            folded(
                "The numbers of the figure", markdown([*header, "seconds, worst", "problems"], rows)
            ),
            sources(path, "every set"),
        ]
    )


def kinds_of_losses():
    """{kind of data: row} of the half that was set aside, and the row of all of them."""
    by_kind = (RESULTS / "losses" / "table.md").read_text().strip().split("\n\n")[0]
    rows = {row["ksd / L-BFGS-B to 1e-06"].strip("*"): row for row in parsed(by_kind)}
    kinds = {kind.split(", ")[1]: row for kind, row in rows.items() if "set-aside" in kind}
    return kinds, kinds.pop("all")


def headline_of_losses():
    """The half that nothing was tuned on, in a sentence."""
    _, aside = kinds_of_losses()
    return (
        "**On data sets that nothing was tuned on, KSD takes "
        f"{float(aside['passes, median']):.0%} of L-BFGS-B's passes and "
        f"{float(aside['seconds, median']):.0%} of its seconds, the median of "
        f"{aside['problems']} problems; at worst {aside['worst']} times the passes and "
        f"{aside['worst 2']} times the seconds.**"
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
    """Sums of many samples, in means."""
    path = RESULTS / "many_samples" / "table.md"
    _, *means, origin = path.read_text().strip().split("\n\n")
    shares = dict(re.findall(r"^ksd / L-BFGS-B, (\w+): ([\d.]+)", "\n".join(means), re.MULTILINE))
    return "\n\n".join(
        [
            f"**KSD takes {float(shares['passes']):.0%} of L-BFGS-B's passes and "
            f"{float(shares['seconds']):.0%} of its seconds, the geometric mean.**",
            sources(path, "every problem", origin),
        ]
    )


def cheap_functions():
    """Seconds where a function costs next to nothing, against the number of unknowns."""
    path = RESULTS / "seconds.md"
    parts = path.read_text().split("\n\n")
    begin = parts.index("**cheap**")
    summary, rows = (parsed(part) for part in parts[begin + 1 : begin + 3])
    halves = [row for row in summary if row["problems"].startswith("aside")]
    points = {"tuned on": [], "set aside": []}
    for row in rows:
        if row["ratio"]:
            series = "tuned on" if row["half"] == "tuned" else "set aside"
            points[series].append((int(row["n"]), float(row["ratio"])))
    figure = benchmark_figures.against_size("cheap", points, "KSD's seconds / the best other's")
    header = ["unknowns", "problems", "KSD's seconds / the best other's, median", "worst"]
    table = markdown(
        header,
        [
            [
                row["problems"].removeprefix("aside, n = ").replace("aside", "all"),
                *(row[column] for column in ("compared", "median", "worst")),
            ]
            for row in halves
        ],
    )
    return "\n\n".join(
        [
            f"**KSD takes {halves[0]['median']} times the seconds of the best of L-BFGS-B, "
            "Newton-CG and trust-krylov, the median of "
            f"{halves[0]['compared'].split('/')[0]} problems that nothing was tuned on; at worst "
            f"{halves[0]['worst']} times.** The ratio falls as the number of unknowns grows. If a "
            "function costs microseconds, take L-BFGS-B.",
            f"![KSD's seconds over the best other method's, against the number of "
            f"unknowns]({figure})",
            folded("By the number of unknowns, problems set aside from tuning", table),
            sources(path, "every problem"),
        ]
    )


def least_squares():
    """Least squares beside SciPy's methods: one row for each collection of fits."""
    path = RESULTS / "least_squares.md"
    sections = path.read_text().strip().split("### ")[1:]
    methods, rows = ("ksdmin", "lm", "trf", "dogbox"), []
    for section in sections:
        title, table, *_ = section.split("\n\n")
        of_method = {row["method"]: row for row in parsed(table)}
        solved_of = next(name for name in of_method["ksdmin"] if name.startswith("solved"))
        wrong = next(name for name in of_method["ksdmin"] if name.startswith("success"))
        base = next(name for name in of_method["ksdmin"] if name.startswith("residuals /"))
        cells = [
            f"{of_method[m][solved_of]} / {of_method[m][wrong]}" if m in of_method else ""
            for m in methods
        ]
        evaluations = f"{of_method['ksdmin'][base]} ({base.split('/ ')[1]})"
        rows.append([title, solved_of.removeprefix("solved of "), *cells, evaluations])
    header = ["fits", "number", *methods, "evaluations of residuals, ksdmin / SciPy's"]
    return "\n\n".join(
        [
            "Fits solved / results that claim success and are wrong, or higher than the best "
            "minimum found:",
            markdown(header, rows),
            sources(path, "Jacobians, digits and seconds, too"),
        ]
    )


def bundle_adjustment():
    """Sparse and structured least squares beside trf with lsmr."""
    path = RESULTS / "bundle_adjustment.md"
    table = path.read_text().strip().split("\n\n")[0]
    ratios = [float(row["ratio"]) for row in parsed(table)]
    return "\n\n".join(
        [
            f"**ksdmin takes {statistics.median(ratios):.2f} times the seconds that SciPy's `trf` "
            f"takes to its lowest cost, the median of {len(ratios)} problems; at worst "
            f"{max(ratios):.2f}.**",
            folded("Every problem, with the last costs of both", table),
        ]
    )


def growth():
    """What KSD's own algebra takes as n and K grow, and the memory of a run."""
    text = (RESULTS / "growth.md").read_text().strip()
    by_n = {row["n"]: row["K = 20"] for row in parsed(text.split("\n\n")[1])}
    return (
        f"**With K = 20 it takes {by_n['10,000']} ns for n = 10,000 and {by_n['1,000,000']} ns for "
        "n = 1,000,000, where the vectors no longer fit into the processor's cache: it is linear "
        f"in n.** ({link(RESULTS / 'growth.md', 'every n and K, and the memory of a run')})"
    )


def logistic():
    """Beside scikit-learn's solvers."""
    path = RESULTS / "logistic.md"
    _, halves, *_ = path.read_text().strip().split("\n\n")
    aside = {row["solver"]: row for row in parsed(halves) if row["half"] == "held out"}
    plain, torch = aside["ksd"], aside["ksd, from_torch"]
    return "\n\n".join(
        [
            f"**With NumPy functions KSD takes {plain['median ratio']} times the seconds of "
            "the best of scikit-learn's four solvers, the median of the problems held out; at "
            f"worst {plain['worst']}. With `from_torch` it takes {torch['median ratio']} and "
            f"{torch['worst']}.** KSD is ahead where there are many samples. The small problems "
            "take milliseconds.",
            sources(path, "every problem, in milliseconds"),
        ]
    )


def sources(path, what, origin=""):
    """Where the numbers are: the table of all, the runs, machine and commit."""
    runs = [link(run, NAMES.get(run.stem, run.stem)) for run in sorted(path.parent.glob("*.json"))]
    own = path.parent != RESULTS
    parts = [f"{link(path, 'All numbers')}: {what}"]
    parts += [f"Runs: {', '.join(runs)}"] if own else []
    parts += [f"Measured on {origin}"] if origin else []
    return ". ".join(parts) + "."
