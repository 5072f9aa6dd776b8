"""What a release needs stays in order: versions, metadata, the files beside the package."""

import importlib
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.processes import ROOT, printed_by

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """The check of versions, in a tree whose files are as they should be for a release."""
    spec = importlib.util.spec_from_file_location("versions", ROOT / ".ci/versions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "ksdmin").mkdir()
    (tmp_path / "ksdmin/__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.3] - 2026-11-30\n\n## [1.2.2]\n")
    (tmp_path / "CITATION.cff").write_text('version: 1.2.3\ndate-released: "2026-11-30"\n')
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def test_the_tree_may_be_rehearsed():
    assert printed_by([sys.executable, ROOT / ".ci/versions.py"]) == "in order\n"


def test_a_release_that_is_ready(versions):
    assert versions.complaints(final=True) == []


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("ksdmin/__init__.py", '__version__ = "1.2.3.dev0"\n', "no version to release"),
        ("ksdmin/__init__.py", '__version__ = "one"\n', "expected X.Y.Z"),
        ("CHANGELOG.md", "## [Unreleased]\n\n## [1.2.3] - 2026-11-30\n", "not Unreleased"),
        ("CHANGELOG.md", "## [1.2.3]\n", "date"),
        ("CITATION.cff", "version: 1.2.2\ndate-released: 2026-11-30\n", "not 1.2.2"),
        ("CITATION.cff", "version: 1.2.3\n", "date-released"),
    ],
)
def test_a_release_that_is_not_ready(versions, name, text, complaint):
    (versions.ROOT / name).write_text(text)
    assert complaint in "\n".join(versions.complaints(final=True))


def test_runtime_bounds_can_be_turned_into_versions():
    """.ci/oldest makes == of each >=: other forms would go unnoticed."""
    extras = PROJECT["optional-dependencies"]
    bounds = [*PROJECT["dependencies"], *extras["torch"], *extras["jax"], *extras["autograd"]]
    assert all(re.fullmatch(r"[\w-]+>=[\d.]+", bound) for bound in bounds)


def test_the_workflow_runs_what_is_run_here():
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    checks = workflow["jobs"]["checks"]
    assert [step["run"] for step in checks["steps"] if "run" in step] == [".ci/run"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert checks["strategy"]["matrix"]["python"] == named


def test_a_tag_is_checked_before_anything_is_published():
    """And nothing is published until a maintainer switches it on."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert any(step.get("run", "").startswith(".ci/release") for step in jobs["build"]["steps"])
    publishing = {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})}
    assert publishing == {"pypi", "pages"}
    for job in (jobs[name] for name in publishing):
        assert job["needs"] == ["build", "site"]
        assert job["if"].startswith("github.ref_type == 'tag' && vars.PUBLISH_")


def test_pages_say_how_to_install(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    install = importlib.import_module("install")
    monkeypatch.setattr(install, "REPOSITORY", None)
    assert "in a clone" in install.line()
    monkeypatch.setattr(install, "REPOSITORY", "https://example.org/ksdmin")
    assert "git+https://example.org/ksdmin" in install.line()
    table = install.compatibility()
    assert [
        name for name in ("Python", "numpy", "torch", "jax") if f"| {name} |" not in table
    ] == []


def texts():
    """What users read: sources, pages and messages, but nothing that is built of them."""
    folders = [ROOT, *(ROOT / name for name in ("ksdmin", "docs", "examples", "tests"))]
    files = [*folders[0].glob("*"), *(path for each in folders[1:] for path in each.rglob("*"))]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in files
        if path.suffix in (".py", ".md", ".rst", ".cff") and "_build" not in path.parts
    }


def test_nothing_tells_to_install_what_is_not_on_pypi():
    """Until there is a release, `ksdmin` on PyPI is a name that anybody may take."""
    from_pypi = re.compile(r"""pip install[^\n`]*?(?<![/.\w-])["']?ksdmin\b""")
    assert from_pypi.search("pip install 'ksdmin[torch]'")
    assert from_pypi.search('pip install -U "ksdmin"')
    assert not from_pypi.search('pip install ".[torch]"')
    found = texts()
    assert {"README.md", "ksdmin/plotting.py", "docs/start.md"} <= set(found)
    del found[str(Path(__file__).relative_to(ROOT))]
    assert [name for name, text in found.items() if from_pypi.search(text)] == []
