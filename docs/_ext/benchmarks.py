"""The benchmarks' tables and figures, from the committed results alone."""

import json
import re
from pathlib import Path

from tables import markdown

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "examples/benchmarks/results"
PICTURE = ROOT / "docs/_static/ksd-and-lbfgsb.json"
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
    """A collection's tables and profiles."""
    folder = RESULTS / "scipy" / name
    text = (folder / "table.md").read_text()
    figures = [
        f"![Performance profiles, {name}, solved by {kind}](../{path.relative_to(ROOT)})"
        for kind in ("gradient", "value")
        if (path := folder / f"profiles-{kind}.svg").exists()
    ]
    runs = ", ".join(link(path, path.stem) for path in sorted(folder.glob("*.json")))
    return "\n\n".join([*figures, text, f"Runs: {runs}."])


def sums_of_losses():
    """What KSD needs of the others' passes, and whether that is what was aimed at."""
    path = RESULTS / "regression" / "table.md"
    _, ratios, _, verdicts, origin = path.read_text().strip().split("\n\n")
    runs = ", ".join(link(run, run.stem) for run in sorted(path.parent.glob("*.json")))
    return "\n\n".join([ratios, verdicts, f"{origin}. {link(path, 'All passes')}. Runs: {runs}."])


def products():
    """What a product costs, in units of a gradient, on the machines measured."""
    parts = []
    for path in sorted(RESULTS.glob("torch_products_*.json")):
        report = json.loads(path.read_text())
        precisions = [key for key in ("highest", "high") if key in report]
        names = [n for n in report[precisions[0]] if timed(n)]
        rows = [
            [
                name,
                *(f"{1e3 * report[p][name]:.3g}" for p in precisions),
                *(f"{report[p][name] / report[p]['gradient']:.2f}" for p in precisions),
            ]
            for name in names
        ]
        words = {"highest": "float32", "high": "TF32"}
        header = ["", *(f"ms, {words[p]}" for p in precisions)]
        header += [f"gradients, {words[p]}" for p in precisions]
        about = f"{report['hardware']}, torch {report['torch']}, {report['samples']} samples"
        about += f", commit {report['commit']}"
        parts += [f"**{about}** ({link(path, 'results')})", markdown(header, rows)]
    return "\n\n".join(parts)


def product_cost():
    """What a product of several nets costs, in units of a gradient."""
    path = RESULTS / "product_cost_h200.json"
    report = json.loads(path.read_text())
    about = ("date", "commit", "hardware", "torch")
    rows = [
        [name, *(f"{times[f'{kind} in gradients']:.2f}" for kind in ("gauss-newton", "hessian"))]
        for name, times in report.items()
        if name not in about
    ]
    table = markdown(["net, precision", "Gauss-Newton", "Hessian"], rows)
    origin = f"**{report['hardware']}, commit {report['commit']}** ({link(path, 'results')})"
    return f"{origin}\n\n{table}"


def streaming():
    """What a streamed set takes, in units of one in memory."""
    parts = []
    for path in sorted(RESULTS.glob("streamed_data_*.json")):
        report = json.loads(path.read_text())
        nets = report["seconds"]
        rows = [
            [task, *(f"{nets[net][task]['ratio']:.2f}" for net in nets)]
            for task in nets[next(iter(nets))]
        ]
        about = f"{report['hardware']}, {report['samples']:,} samples, commit {report['commit']}"
        parts += [f"**{about}** ({link(path, 'results')})", markdown(["", *nets], rows)]
    return "\n\n".join(parts)


def timed(name):
    return not name.startswith(("error", "overhead", "search", "peak", "its", "value", "of it"))


def picture():
    """The sentence under the picture of the front page."""
    report = json.loads(PICTURE.read_text())
    ksd, other = report["runs"]["KSD"], report["runs"]["L-BFGS-B"]
    return (
        f"Softmax regression on {report['samples']:,} digits, {report['unknowns']} unknowns, to a "
        f"gradient below {report['gtol']:g}: {ksd['passes'][-1]:.0f} passes over the data and "
        f"{ksd['seconds']:.1f} seconds against {other['passes'][-1]:.0f} and "
        f"{other['seconds']:.1f}. Drawn by [picture.py](picture.py) from "
        f"[its results](_static/{PICTURE.name}); {report['environment']}."
    )
