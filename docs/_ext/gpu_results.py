"""What was measured of nets, most of it on a GPU."""

import json
import math

from benchmarks import RESULTS, link
from tables import folded, markdown

from examples.benchmarks.net_suite import time_tables
from examples.benchmarks.net_suite.experiments import EXPERIMENTS
from examples.benchmarks.nets_of_today import IDENTITY
from examples.harness.store import Store
from examples.harness.tables import number, origins
from examples.pictures import deep_net_run, todays_nets_run


def read(name):
    return json.loads((RESULTS / name).read_text())


def headline():
    """The auto-encoder, then what of its seconds is the method's own."""
    picture = deep_net_run.picture()
    share, watching = read("own_share_h200.json"), read("watching_cost_h200.json")
    nets = ", ".join(f"{net['own share']:.0%} ({name})" for name, net in share["nets"].items())
    return "\n\n".join(
        [
            f"**{picture.title}. {picture.sentence}** ({picture.origin})",
            f"![{picture.title}: {picture.axis} against seconds](_static/{picture.path.name})",
            "Every evaluation is a replay of captured CUDA graphs. The method itself, without its "
            f"evaluations, takes this share of all seconds: {nets}. Progress, history and a "
            "checkpoint every minute take "
            f"{watching['share of the run']:.1%}. Measured on {share['hardware']}, commits "
            f"{share['commit']} and "
            f"{watching['commit']}.",
        ]
    )


def products():
    """What a product costs, in units of a gradient, on the machines measured."""
    parts = [headline_of_products()]
    for path in sorted(RESULTS.glob("torch_products_*.json")):
        report = json.loads(path.read_text())
        about = f"{report['hardware']}, torch {report['torch']}, {report['samples']} samples"
        about += f", commit {report['commit']}"
        parts.append(folded(about, f"{product_table(report)}\n\n{link(path, 'results')}"))
    return "\n\n".join(parts)


def headline_of_products():
    """The two largest kinds of product on the GPU."""
    report = read("torch_products_h200.json")["high"]
    in_gradients = report["gauss-newton"] / report["gradient"]
    return f"**On the H200 with TF32 a Gauss-Newton product costs {in_gradients:.2f} gradients.**"


def product_table(report):
    precisions = [key for key in ("highest", "high") if key in report]
    rows = [
        [
            name,
            *(f"{1e3 * report[p][name]:.3g}" for p in precisions),
            *(f"{report[p][name] / report[p]['gradient']:.2f}" for p in precisions),
        ]
        for name in report[precisions[0]]
        if timed(name)
    ]
    words = {"highest": "float32", "high": "TF32"}
    header = ["", *(f"ms, {words[p]}" for p in precisions)]
    return markdown([*header, *(f"gradients, {words[p]}" for p in precisions)], rows)


def timed(name):
    return not name.startswith(("error", "overhead", "search", "peak", "its", "value", "of it"))


def product_cost():
    """What a product of several nets costs, in units of a gradient."""
    report = read("product_cost_h200.json")
    about = ("date", "commit", "hardware", "torch")
    kinds = ("gauss-newton", "hessian")
    costs = {
        name: [times[f"{kind} in gradients"] for kind in kinds]
        for name, times in report.items()
        if name not in about
    }
    rows = [[name, *(f"{cost:.2f}" for cost in of_net)] for name, of_net in costs.items()]
    least, most = min(c for c, _ in costs.values()), max(c for c, _ in costs.values())
    origin = f"{report['hardware']}, commit {report['commit']}"
    table = markdown(["net, precision", "Gauss-Newton", "Hessian"], rows)
    path = RESULTS / "product_cost_h200.json"
    return (
        f"**A Gauss-Newton product of other nets costs {least:.2f} to {most:.2f} gradients.**\n\n"
        + folded(f"Each net ({origin})", f"{table}\n\n{link(path, 'results')}")
    )


def streaming():
    """What a streamed set takes, in units of one in memory."""
    parts = []
    for path in sorted(RESULTS.glob("streamed_data_*.json")):
        report = json.loads(path.read_text())
        nets = report["seconds"]
        tasks = list(nets[next(iter(nets))])
        rows = [[task, *(f"{nets[net][task]['ratio']:.2f}" for net in nets)] for task in tasks]
        words = ", ".join(f"{nets[net]['five products']['ratio']:.2f} ({net} net)" for net in nets)
        about = f"{report['hardware']}, {report['samples']:,} samples, commit {report['commit']}"
        table = f"{markdown(['', *nets], rows)}\n\n{link(path, 'results')}"
        parts += [
            f"**{report['hardware']}: five products of a streamed set take {words} times "
            "those in memory.**",
            folded(about, table),
        ]
    return "\n\n".join(parts)


def todays_nets():
    """Seconds to a training loss of several nets: a table, pictures, all levels folded."""
    runs = todays_nets_run.gpu_runs()
    if not runs:
        return "Not measured on a GPU yet."
    of_nets = time_tables.by_net(runs)
    figures = [
        f"![{made.title}: {made.axis} against seconds](_static/{made.path.name})"
        for made in (make() for make in todays_nets_run.makers().values())
    ]
    tables = "\n\n".join(
        f"{time_tables.title(of_net)}:\n\n{time_tables.table(of_net)}"
        for of_net in of_nets.values()
    )
    origin = origins(runs, time_tables.ABOUT)
    return "\n\n".join(
        [
            headline_of_nets(),
            markdown(
                ["net", "training loss", "KSD, seconds", "Adam's best rate, seconds"],
                [row_of_net(name, of_net) for name, of_net in of_nets.items()],
            ),
            *figures,
            folded("Other losses, validation and test errors", f"{tables}\n\n{time_tables.NOTE}"),
            f"Measured on {origin} ({link(todays_nets_run.RESULTS, 'results')}).",
            "Small nets on two cores of a CPU, 1,347 images:",
            small_nets(),
        ]
    )


def headline_of_nets():
    """On how many nets which method is the first at the least loss."""
    firsts = [
        seconds_of(name, of_net)
        for name, of_net in time_tables.by_net(todays_nets_run.gpu_runs()).items()
    ]
    ksd = sum(own < adams for _, own, adams in firsts)
    return (
        f"**KSD is the first at a low training loss on {ksd} of {len(firsts)} nets, Adam with its "
        f"best rate on {sum(own > adams for _, own, adams in firsts)}.** All runs are short, a "
        "few seconds on one GPU."
    )


def row_of_net(name, runs, others=()):
    """The least level that KSD or Adam reaches, and when they do, and other methods."""
    level, *seconds = seconds_of(name, runs)
    groups = time_tables.by_label(runs)
    seconds += [time_tables.median_seconds(groups[other], level) for other in others]
    shown = (number(at, ".1f", infinite="not reached") for at in seconds)
    return [EXPERIMENTS[name].title, f"{level:g}", *shown]


def small_nets():
    """The same for small nets on a CPU, with L-BFGS."""
    runs = Store(todays_nets_run.RESULTS.with_name("nets_of_today_cpu.json"), IDENTITY).runs
    rows = [
        row_of_net(name, of_net, ["torch-lbfgs"])
        for name, of_net in time_tables.by_net(runs).items()
    ]
    columns = ["net", "training loss", "KSD, seconds", "Adam's best rate", "L-BFGS"]
    origin = origins(runs, time_tables.ABOUT)
    return f"{markdown(columns, rows)}\n\n10 seconds each, medians of seeds. Measured on {origin}."


def seconds_of(name, runs):
    """The least level that one of the two reaches, KSD's seconds and those of Adam's best rate."""
    groups = time_tables.by_label(runs)
    for level in sorted(EXPERIMENTS[name].levels):
        own = time_tables.median_seconds(groups["ksd"], level) if "ksd" in groups else math.inf
        adams = time_tables.adams_seconds(groups, level)
        if math.isfinite(min(own, adams)):
            break
    return level, own, adams
