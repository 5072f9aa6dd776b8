"""The structure of the package: which room imports which, and how large its pieces are."""

import ast
import re
import sysconfig
from pathlib import Path

from tests.processes import ROOT, printed_by

PACKAGE = ROOT / "ksdmin"
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in FILES
}


def test_imports_point_downwards():
    """The contracts are in pyproject.toml."""
    command = Path(sysconfig.get_path("scripts")) / "lint-imports"
    printed_by([command, "--no-cache"])


def imports(path):
    """The modules of the package that a file imports, for typing or not."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ksdmin"):
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in MODULES else node.module


def test_no_two_files_need_each_other():
    below = {name: set(imports(path)) & set(MODULES) for name, path in MODULES.items()}
    while leaves := [name for name, needed in below.items() if not needed]:
        for leaf in leaves:
            del below[leaf]
        for needed in below.values():
            needed.difference_update(leaves)
    assert not below, f"a circle among {sorted(below)}"


def test_the_core_looks_up_no_library():
    """Neither in `sys.modules` nor by `import_module`, of which the contracts know nothing."""
    lookup = re.compile(r'sys\.modules(?!\["ksdmin"\])|import_module\(\s*"(torch|jax|autograd)')
    may = ("_adapters", "_libraries", "torch")
    core = [path for path in FILES if path.relative_to(PACKAGE).parts[0] not in may]
    assert [path for path in core if lookup.search(path.read_text())] == []


def test_files_are_not_too_long_to_read():
    """A file holds one idea: the limit catches what grew without design, and shapes nothing."""
    lengths = {path: len(path.read_text().splitlines()) for path in FILES}
    assert {path: n for path, n in lengths.items() if n > 600} == {}
