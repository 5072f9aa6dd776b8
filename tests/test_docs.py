"""The site builds without a warning, what it links to is there, and a browser shows it.

The fast tier builds it without running the tutorials and without the texts that take long, the full
one runs each tutorial alone, and all in a build. Without Chromium the browser is left out.
"""

import functools
import importlib
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

import ksdmin
from ksdmin._ksd.rules import space, stall
from ksdmin._options import RULES
from tests.processes import ROOT, printed_by

pytest.importorskip("sphinx")
TUTORIALS = sorted((ROOT / "examples/gallery").glob("*.py"))
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
MAIN_PAGES = (
    *("index", "start", "entry_points", "tutorials/index", "loop", "paper", "experiments"),
    *("benchmarks", "for_scipy_users", "for_data_scientists", "for_torch_users", "for_jax_users"),
    *("reference/index", "reference/options", "how", "faq", "contributing", "changelog"),
)


def build(folder, *arguments):
    """Build from a copy, so that neither a checkout nor another build is touched."""
    ignored = shutil.ignore_patterns("_build", "tutorials", "generated", "__pycache__")
    for name in (".ci", "docs", "examples", "ksdmin"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    alone = ("LICENSE", "CITATION.cff", "pyproject.toml")
    for path in [*ROOT.glob("*.md"), *(ROOT / name for name in alone)]:
        shutil.copy(path, folder)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", *arguments]
    printed_by([*command, "docs", "site"], folder, PYTHONPATH="")
    return folder / "site"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build(tmp_path_factory.mktemp("docs"), "-D", "plot_gallery=0", "-D", "long_texts=0")


class Page(HTMLParser):
    """What a page links to, loads, and can be linked to at."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors |= {attrs[key] for key in ("id", "name") if attrs.get(key)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if tag in ("script", "img", "iframe") and attrs.get("src"):
            self.loads.append(attrs["src"])
        if tag == "link" and attrs.get("rel") in ("stylesheet", "preload", "icon"):
            self.loads.append(attrs["href"])


@pytest.fixture(scope="module")
def pages(site):
    return {p: Page(p) for p in site.rglob("*.html") if site / "_static" not in p.parents}


# Without running the tutorials


def test_links_within_the_site_resolve(site, pages):
    broken = []
    for path, page in pages.items():
        for href in [*page.links, *page.loads]:
            parts = urlsplit(href)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            anchors = pages[target].anchors if target in pages else None
            if not target.exists() or (
                parts.fragment and anchors and parts.fragment not in anchors
            ):
                broken.append(f"{path.relative_to(site)} -> {href}")
    assert broken == []


def test_pages_are_there_and_whole(site, pages):
    assert [name for name in MAIN_PAGES if not (site / f"{name}.html").exists()] == []
    elsewhere = [src for page in pages.values() for src in page.loads if urlsplit(src).netloc]
    assert elsewhere == []
    left = [path.name for path in site.rglob("*.html") if "<!-- generated:" in path.read_text()]
    assert left == []


def test_every_public_name_is_documented(pages):
    anchors = set().union(*(page.anchors for page in pages.values()))
    names = [*ksdmin.__all__, *(f"torch.{name}" for name in ksdmin.torch.__all__)]
    assert [name for name in names if f"ksdmin.{name}" not in anchors] == []


def test_every_option_and_status_is_told(site):
    options = (site / "reference/options.html").read_text()
    assert [name for name in ksdmin.Options.__dataclass_fields__ if name not in options] == []
    results = (site / "reference/results.html").read_text()
    assert [status.name for status in ksdmin.Status if status.name not in results] == []


def test_every_rule_is_told_with_its_thresholds(site):
    shown = (site / "steps.html").read_text()
    assert [name for name in RULES if f">{name}<" not in shown] == []
    for module in (space, stall):
        constants = [name for name in vars(module) if name.isupper() and name != "EPS"]
        assert constants
        assert [name for name in constants if name not in shown] == []


def test_every_question_can_be_linked(site, pages):
    text = (ROOT / "docs/faq.md").read_text()
    questions = re.findall(r"^## ", text, re.MULTILINE)
    shown = (site / "faq.html").read_text()
    linked = re.findall(r'<h2>.+?<a class="headerlink" href="#[^"]+"', shown)
    assert len(questions) == len(linked) > 20


def test_no_page_has_an_empty_navigation(site):
    """Pages at the top have nothing below them that a sidebar could show."""
    empty = [p.name for p in site.glob("*.html") if "Section Navigation" in p.read_text()]
    assert set(empty) <= {"genindex.html", "search.html"}


def test_every_variant_of_the_ablation_is_a_run(monkeypatch):
    """The table itself is made in the full tier."""
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    from_code = importlib.import_module("from_code")
    found = from_code.variants()
    assert len(found) > 5
    for preset, options in found.values():
        monkeypatch.setitem(from_code.PRESETS, "default", preset)
        res = ksdmin.minimize(lambda x: x @ x, [3.0, 1.0], options={"maxiter": 1, **options})
        assert res.nit <= 1


def test_tutorials_are_numbered_and_titled():
    numbers = [int(path.name[:2]) for path in TUTORIALS]
    assert numbers == list(range(1, len(TUTORIALS) + 1))
    for number, path in zip(numbers, TUTORIALS, strict=True):
        assert re.match(rf'"""\n{number}\. .+\n=+\n', path.read_text()), path.name


def test_links_of_markdown_files_resolve():
    """As they are read in the repository."""
    broken = []
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/reference/*.md")]:
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
            parts = urlsplit(target)
            built = re.match(r"(\.\./)?(tutorials|generated)/", parts.path)
            if not (parts.scheme or built or (path.parent / parts.path).exists()):
                broken.append(f"{path.name} -> {target}")
    assert broken == []


# In a browser


@pytest.fixture(scope="module")
def address(site):
    quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *args: None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=site))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def opened(url, profile):
    """The page after its scripts have run, and what it wrote to the console."""
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
    ran = subprocess.run(
        [
            *(CHROMIUM, *flags, f"--user-data-dir={profile}", "--enable-logging=stderr"),
            *("--virtual-time-budget=10000", "--timeout=30000", "--dump-dom", url),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    console = [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]
    return ran.stdout, [line for line in console if '"[PST]: ' not in line]  # the theme's chatter


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
@pytest.mark.parametrize("page", ["index", "start", "paper", "benchmarks", "tutorials/index"])
def test_opens_without_console_errors(address, page, tmp_path):
    shown, console = opened(f"{address}/{page}.html", tmp_path)
    assert console == []
    assert "</h1>" in shown


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
def test_search_finds_an_option(address, tmp_path):
    shown, console = opened(f"{address}/search.html?q=krylov_dim", tmp_path)
    assert console == []
    results = shown[shown.index('id="search-results"') :]
    assert "reference/options.html" in results


# Running the tutorials


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_runs_alone(script, tmp_path):
    assert printed_by([sys.executable, script], tmp_path, MPLBACKEND="agg")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_whole_site_builds(tmp_path):
    site = build(tmp_path)
    left = [p.name for p in site.rglob("*.html") if "left out of a quick build" in p.read_text()]
    assert left == []
    figures = list((site / "_images").glob("sphx_glr_*_001.png"))
    assert len(figures) >= len(TUTORIALS)
