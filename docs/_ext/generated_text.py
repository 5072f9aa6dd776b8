"""Text that code writes: ``<!-- generated: name arguments -->`` in a page becomes what it returns.

The functions return Markdown. In a page that is read without Sphinx the comment shows nothing.
"""

import re
from pathlib import Path

import algorithms
import benchmarks
import experiments
import from_code
import from_repository
import front_page
import gpu_results
import install
import physics
import rules

GENERATORS = {
    "ablation": from_code.ablation,
    "algorithm": algorithms.table,
    "algorithm-functions": algorithms.functions,
    "cheap": benchmarks.cheap_functions,
    "compatibility": install.compatibility,
    "decision": benchmarks.decision,
    "experiments": experiments.page,
    "file": from_repository.text,
    "growth": benchmarks.growth,
    "headline-of-losses": benchmarks.headline_of_losses,
    "headline-of-nets": gpu_results.headline_of_nets,
    "install": install.line,
    "least-squares": benchmarks.least_squares,
    "bundle-adjustment": benchmarks.bundle_adjustment,
    "logistic": benchmarks.logistic,
    "losses": benchmarks.other_losses,
    "many-samples": benchmarks.many_samples,
    "nets": gpu_results.todays_nets,
    "on-a-gpu": gpu_results.headline,
    "open-choices": experiments.open_choices,
    "options": from_code.options,
    "physics": physics.section,
    "pictures": front_page.grid,
    "presets": from_code.presets,
    "products": gpu_results.products,
    "rules": rules.table,
    "scipys-methods": benchmarks.scipys_methods,
    "product_cost": gpu_results.product_cost,
    "streaming": gpu_results.streaming,
    "statuses": from_code.statuses,
    "sums": benchmarks.sums_of_losses,
}
# These run KSD or draw many figures. With -D long_texts=0 they are left out.
LONG = {"ablation", "experiments", "open-choices", "physics"}
LEFT_OUT = "*This part is left out of a quick build of the site.*"
MARK = re.compile(r"^<!-- generated: ([\w-]+) ?(.*?) -->$", re.MULTILINE)


def read(app, docname, source):
    def generate(match):
        name, arguments = match.groups()
        if name in LONG and not app.config.long_texts:
            return LEFT_OUT
        return GENERATORS[name](*arguments.split())

    source[0] = MARK.sub(generate, source[0])


def outdated(app, env, added, changed, removed):
    """Pages with such text may have changed whenever the code has."""
    return [name for name in env.found_docs if MARK.search(Path(env.doc2path(name)).read_text())]


def setup(app):
    app.add_config_value("long_texts", True, "env")
    app.connect("source-read", read)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
