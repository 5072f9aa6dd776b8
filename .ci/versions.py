"""Whether version, changelog and citation agree; with `final`: and are ready to be tagged."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def found(pattern: str, name: str) -> str | None:
    match = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
    return match and match[1]


def complaints(*, final: bool) -> list[str]:
    """What is wrong, a line for each."""
    version = found(r'^__version__ = "(.*)"$', "ksdmin/__init__.py")
    heading = found(r"^## \[(.*?)\]", "CHANGELOG.md")  # the newest
    cited = found(r'^version: "?([^"\s]*)"?$', "CITATION.cff")
    if version is None or not re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", version):
        return [f"ksdmin/__init__.py: the version is {version}, expected X.Y.Z, .devN or rcN"]
    if not final:
        return [] if heading in ("Unreleased", version) else [f"CHANGELOG.md: {heading} is newest"]
    wrong = []
    if "dev" in version:
        wrong.append(f"ksdmin/__init__.py: {version} is no version to release")
    if heading != version or not found(
        rf"^## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)$", "CHANGELOG.md"
    ):
        wrong.append(f"CHANGELOG.md: expected '## [{version}] - date' at the top, not {heading}")
    if cited != version or not found(r'^date-released: "?(\d{4}-\d\d-\d\d)"?$', "CITATION.cff"):
        wrong.append(f"CITATION.cff: expected version {version}, not {cited}, and date-released")
    return wrong


if __name__ == "__main__":
    found_wrong = complaints(final="final" in sys.argv[1:])
    print("\n".join(found_wrong) or "in order")
    sys.exit(1 if found_wrong else 0)
