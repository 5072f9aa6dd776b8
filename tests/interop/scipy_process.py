"""A process that runs SciPy's own tests, with a file of this folder as a pytest plugin.

It is a fresh one, since the plugin patches ``scipy.optimize`` and must not see our own settings.
The hooks at the end are of the plugin, which imports them.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import scipy.optimize

SUITE = Path(scipy.optimize.__file__).parent / "tests"  # as the wheel ships them


def reported(plugin, files, folder, *options):
    """What the plugin has written to the path of its option ``--suite-report``."""
    files = [SUITE / file for file in files if (SUITE / file).exists()]
    if not files:
        pytest.skip("this SciPy was installed without its tests")
    ini, report = folder / "pytest.ini", folder / "report.json"
    ini.write_text("[pytest]\n")  # keeps our own settings (warnings are errors) out of it
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "",
        "OMP_NUM_THREADS": "1",  # the problems are tiny: BLAS threads would only compete
    }
    command = [sys.executable, "-m", "pytest", "--tb=short", "-p", Path(plugin).stem]
    command += ["-p", "no:cacheprovider", "-c", ini, f"--rootdir={SUITE}"]
    command += [f"--suite-report={report}", *options, *files]
    settings = {"cwd": folder, "env": environment, "timeout": 600, "text": True}
    done = subprocess.run(command, capture_output=True, **settings)
    assert report.exists(), f"SciPy's tests did not run:\n{done.stdout}\n{done.stderr}"
    return json.loads(report.read_text())


def assert_failures_are_known(report, known):
    """Of more than 80 tests: if SciPy moved them, this would otherwise hold of nothing."""
    assert len(report) > 80
    failed = {test: error for test, error in report.items() if error}
    lines = [f"{test}\n    {failed[test]}" for test in failed if test not in known]
    assert not lines, "SciPy's tests that fail:\n" + "\n".join(lines)


errors = {}  # test -> its error line, "" if it passed


def noted(report):
    """Note how a test went."""
    crash = getattr(report.longrepr, "reprcrash", report.longrepr)
    line = " ".join(str(getattr(crash, "message", crash)).split())[:300]
    errors[report.nodeid] = line if report.failed else ""


def pytest_addoption(parser):
    parser.addoption("--suite-report")


def pytest_sessionfinish(session):
    Path(session.config.getoption("--suite-report")).write_text(json.dumps(errors))
