"""ksdmin with one number changed: its source is changed while it is imported.

So the number is changed wherever it counts: where other modules import it, where it is the default
of a field, where another constant is computed from it. A process that has done this has no other
ksdmin any more; `jobs` gives each variant a process of its own.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any

from examples.benchmarks.rule_variants.constants import Constant, place

REPLACED = ("ksdmin", "examples")
KEPT = "examples.benchmarks.rule_variants.preloaded"  # what it holds is shared


class Replace(ast.NodeTransformer):
    """Puts a number in the place of an expression."""

    def __init__(self, constant: Constant, value: float) -> None:
        self._place, self._value, self.done = constant.place, value, 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and place(node) == self._place:
            self.done += 1
            return ast.copy_location(ast.Constant(self._value), node)
        return self.generic_visit(node)


def changed(source: str | bytes, constant: Constant, value: float) -> ast.AST:
    """The module with the other value."""
    replace = Replace(constant, value)
    tree = replace.visit(ast.parse(source))
    if replace.done != 1:
        raise ValueError(f"{constant.module} has no {constant.name} at {constant.place}")
    return ast.fix_missing_locations(tree)


class Loader(SourceFileLoader):
    """Loads one module with the other value."""

    def __init__(self, spec: ModuleSpec, constant: Constant, value: float) -> None:
        super().__init__(spec.name, str(spec.origin))
        self._change = constant, value

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path)
        return compile(changed(source, *self._change), self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    """Finds that module, and no other."""

    def __init__(self, constant: Constant, value: float) -> None:
        self._change = constant, value

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self._change[0].module:
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None:
            return None
        loader = Loader(spec, *self._change)
        return importlib.util.spec_from_file_location(
            fullname,
            spec.origin,
            loader=loader,
            submodule_search_locations=spec.submodule_search_locations,
        )


def import_again(constant: Constant | None, value: float) -> None:
    """Forget ksdmin, and what was built on it; imports from now on have the other value."""
    for name in list(sys.modules):
        if name.split(".")[0] in REPLACED and name != KEPT:
            del sys.modules[name]
    if constant is not None:
        sys.meta_path.insert(0, Finder(constant, value))
        importlib.import_module(constant.module)  # an error shows here
