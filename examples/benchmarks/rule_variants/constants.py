"""The numbers in the source of a package, so that none can be forgotten.

What counts:

- named: every number of a module-level name; a tuple has as many as it has entries, an expression
  (``2**30``) is one. Defaults of fields that are written as numbers, other than 0 and 1.
- preset: the numbers in the arguments of a module-level object (``DEFAULT = Preset(...)``), and
  its switches, True and False, which are varied but not counted. The paper's preset does not
  count: it is not ours to tune.
- unnamed: numbers inside functions and within other expressions (``100 * EPS``), other than 0, 1, 2
  and 1/2 of either sign, which are rather algebra than a choice; an expression of numbers alone
  (``2 * 2 * 2``) is one. They count like the others: a constant cannot hide by losing its name.

What is computed from other names (``EPS``) or is no number does not count.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "ksdmin._ksd"
NAMED, PRESET, SWITCH, UNNAMED = "named", "preset", "switch", "unnamed"
COUNTED = (NAMED, PRESET, UNNAMED)
PAPERS = frozenset({"AS_PRINTED"})
ALGEBRA = (0, 1, 2, 0.5)
ARITHMETIC = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
Place = tuple[int, int, int, int]  # of a piece of source: first line and column, last ones


@dataclass(frozen=True)
class Constant:
    """A number in the source.

    Attributes
    ----------
    module, name : str
        Where it is, and what it is called there.
    value : float, int or bool
        What it is.
    kind : str
        One of the kinds above.
    place : tuple of int
        Of the expression in the source.
    """

    module: str
    name: str
    value: float
    kind: str
    place: Place

    @property
    def rule(self) -> str:
        """The module's own name."""
        return self.module.rsplit(".", 1)[-1]


def place(node: ast.expr) -> Place:
    end = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return node.lineno, node.col_offset, *end


def modules(package: str = PACKAGE) -> Iterator[ModuleType]:
    """The package's modules, in the order of their names."""
    root = importlib.import_module(package)
    yield root
    for found in pkgutil.walk_packages(root.__path__, f"{package}."):
        yield importlib.import_module(found.name)


def constants(package: str = PACKAGE) -> list[Constant]:
    """All of a package."""
    return [constant for module in modules(package) for constant in of_module(module)]


def of_module(module: ModuleType) -> Iterator[Constant]:
    """Those of one module."""
    if module.__file__ is None:
        return
    tree = ast.parse(Path(module.__file__).read_text())
    for statement in tree.body:
        found = named(statement) if is_assignment(statement) else inside(statement, "")
        for kind, name, node in unique(found):
            yield Constant(module.__name__, name, number(node), kind, place(node))


Found = tuple[str, str, ast.expr]  # kind, name, expression


def is_assignment(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None


def named(statement: Any) -> Iterator[Found]:
    """The numbers of an assignment at the top of a module, or to a field."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            for name, value in zip(target.elts, statement.value.elts, strict=True):
                yield from of_value(ast.unparse(name), value)
        else:
            yield from of_value(ast.unparse(target), statement.value)


def of_value(name: str, value: ast.expr) -> Iterator[Found]:
    if name in PAPERS:
        return
    if is_number(value):
        yield NAMED, name, value
    elif isinstance(value, ast.Tuple):
        for i, entry in enumerate(value.elts):
            yield from of_value(f"{name}[{i}]", entry)
    elif isinstance(value, ast.Call):
        yield from of_call(name, value)
    else:
        yield from inside(value, name)


def of_call(name: str, call: ast.Call) -> Iterator[Found]:
    """The numbers and switches in the arguments of an object."""
    arguments = [(f"{name}.{i}", value) for i, value in enumerate(call.args)]
    arguments += [(f"{name}.{keyword.arg}", keyword.value) for keyword in call.keywords]
    for path, value in arguments:
        if isinstance(value, ast.Call):
            yield from of_call(path, value)
        elif isinstance(value, ast.Constant) and isinstance(value.value, bool):
            yield SWITCH, path, value
        elif is_number(value):
            yield PRESET, path, value
        else:
            yield from inside(value, path)


def inside(node: ast.AST, name: str) -> Iterator[Found]:
    """Numbers within functions, and defaults of fields."""
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.ClassDef) and is_assignment(child):  # type: ignore[arg-type]
            yield from of_field(node.name, child)
        elif is_number(child):
            if abs(number(child)) not in ALGEBRA:  # type: ignore[arg-type]
                owner = getattr(node, "name", name) or "module"
                yield UNNAMED, f"{owner}: {number(child):g}", child  # type: ignore[arg-type]
        else:
            yield from inside(child, getattr(node, "name", name))


def of_field(owner: str, statement: Any) -> Iterator[Found]:
    """The default of a field, where it is a number; or the numbers in it."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    name = f"{owner}.{ast.unparse(target)}"
    if not is_number(statement.value):
        yield from inside(statement.value, name)
    elif number(statement.value) not in ALGEBRA[:2]:
        yield NAMED, name, statement.value


def unique(found: Iterator[Found]) -> Iterator[Found]:
    """Numbers of one function that are equal are told apart."""
    seen: dict[str, int] = {}
    for kind, name, node in found:
        seen[name] = seen.get(name, 0) + 1
        yield kind, name if seen[name] == 1 else f"{name} ({seen[name]})", node


def is_number(node: ast.AST) -> bool:
    """Whether an expression is made of numbers alone."""
    if not isinstance(node, ast.expr) or any(
        not isinstance(part, ARITHMETIC) for part in ast.walk(node)
    ):
        return False
    found = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in found)


def number(node: ast.expr) -> float:
    """The value of an expression that is made of numbers, or of a switch."""
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "<constant>", "eval")
    return eval(code, {"__builtins__": {}})  # arithmetic only: see `is_number`
