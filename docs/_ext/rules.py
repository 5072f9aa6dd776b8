"""The rules and their thresholds: from the docstrings and comments beside the constants."""

import ast
import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

from tables import markdown

from ksdmin._ksd.presets import DEFAULT
from ksdmin._ksd.rules import Rules

# Beside the rules: constants that they, or the sizes of a run, rest on.
ALSO = {
    "damping": ["ksdmin._run.levenberg_marquardt"],
    "newton": ["ksdmin._ksd.cost_model"],
}
# What a kind of step remembers has the name of the kind; what chooses among them has none.
OF_KINDS = {
    "quasi_newton": "quasi-newton",
    "newton": "newton",
    "gauss_newton": "gauss-newton",
    "contest": "",
}
NO_THRESHOLDS = {"EPS", "PAPER"}
SIZES = "ksdmin._ksd.dimensions"
COMMENT = re.compile(r"^#\s?(.*)")


def table():
    """Each rule: its name for the option `without`, what it decides, its thresholds."""
    rows = [row(field.name) for field in fields(Rules)]
    rows.append(
        ["", title(import_module(SIZES)), "<br>".join([*first_sizes(), *thresholds(SIZES)])]
    )
    return markdown(["rule", "what it decides", "thresholds"], rows)


def row(name):
    rule = get_type_hints(Rules)[name]
    module = import_module(rule.__module__)
    told = [*thresholds(module.__name__, rule=rule.__name__)]
    told += [line for where in ALSO.get(name, []) for line in thresholds(where)]
    shown = OF_KINDS.get(name, name)
    return [f"`{shown}`" if shown else "", title(module, name), "<br>".join(told)]


def title(module, name=""):
    """The first sentence of a module's docstring, or that of a rule in it, without the name."""
    paragraphs = [part.replace("\n", " ") for part in module.__doc__.split("\n\n")]
    word = name.replace("_", " ").capitalize()
    sentence = next((part for part in paragraphs if part.startswith(f"{word}: ")), paragraphs[0])
    return re.split(r"\. (?=[A-Z])", sentence.split(": ", 1)[-1])[0].rstrip(".")


def first_sizes():
    """What the preset says of the first sets."""
    root = "with many samples n, B and C begin with at most twice this number times sqrt(n)"
    yield f"`per_root` = {DEFAULT.per_root}: {root}"
    yield f"`fewest` = {DEFAULT.fewest:,}: fewer samples in B and C are not worth sampling"


def thresholds(where, only=None, rule=None):
    """`NAME` = value: the first sentence of the comment; of what a module imports, too.

    Where several rules share a module, those between a rule and the one before it.
    """
    lines = Path(import_module(where).__file__).read_text().splitlines()
    nodes = ast.parse("\n".join(lines)).body
    first, last = span(nodes, rule)
    own = [node for node in nodes if first <= node.lineno <= last]
    source = "\n".join(ast.unparse(node) for node in own if not isinstance(node, ast.ImportFrom))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and only is None:
            shared = {alias.name for alias in node.names if alias.name.isupper()} - NO_THRESHOLDS
            shared = {name for name in shared if re.search(rf"\b{name}\b", source)}
            yield from thresholds(node.module, shared) if shared else ()
        elif (
            node in own
            and isinstance(node, ast.Assign)
            and (names := listed(node.targets[0])).isupper()
        ):
            told = f"`{names}` = {listed(node.value)}{comment(lines, node)}"
            yield from [told] if only is None or names in only else ()


def span(nodes, rule):
    """The lines of a rule in its module: from the end of the rule before it; all without one."""
    rules = {kind.__name__ for kind in get_type_hints(Rules).values()}
    ends = [(node.name, node.end_lineno) for node in nodes if getattr(node, "name", "") in rules]
    at = [name for name, _ in ends].index(rule) if rule else 0
    first = ends[at - 1][1] if at else 0
    return first, ends[at][1] if rule and at + 1 < len(ends) else 10**6


def listed(node):
    """The source; of a tuple without its brackets."""
    text = ast.unparse(node)
    return text[1:-1] if isinstance(node, ast.Tuple) else text


def comment(lines, node):
    """Beside the constant or above it."""
    beside = lines[node.end_lineno - 1].split("  # ")
    above = []
    for line in reversed(lines[: node.lineno - 1]):
        if not COMMENT.match(line):
            break
        above.insert(0, COMMENT.match(line).group(1))
    text = beside[1] if len(beside) > 1 else " ".join(above)
    text = re.sub(r"^(How these numbers were|Intervals|Measured)\b.*?\.py\. ", "", text)
    sentence = re.split(r"\. (?=[A-Z])", text)[0].rstrip(".")
    return f": {sentence}" if sentence else ""
