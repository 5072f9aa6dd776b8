"""How Sphinx builds the site. Off line: nothing is fetched, and no page loads anything."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # so that times in the tutorials compare
HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE / "_ext"), str(ROOT)]

from install import REPOSITORY  # noqa: E402

import ksdmin  # noqa: E402 - the one of this tree

project = "ksdmin"
author = "ksdmin developers"
project_copyright = "ksdmin developers, BSD-3-Clause"
version = release = ksdmin.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    # docs/_ext
    "elsewhere",
    "generated_text",
    "mathml",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_ext", "README.md", "**/sg_execution_times.rst", "sg_*"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the numpydoc sections tell the types in words
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "ksdmin"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_last_updated_fmt = None
html_context = {"default_mode": "auto"}
# Pages without pages below them have no navigation at the left: it would be empty.
html_sidebars = {
    name.removesuffix(".md"): []
    for name in os.listdir(HERE)
    if name.endswith(".md") and name != "index.md"
}
html_theme_options = {
    "logo": {"text": "ksdmin"},
    "header_links_before_dropdown": 6,
    "icon_links": [{"name": "Repository", "url": REPOSITORY, "icon": "fa-solid fa-code"}]
    if REPOSITORY
    else [],
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_prev_next": True,
    # Tutorials have lines of 100 columns: no second sidebar, so that none is cut off.
    "secondary_sidebar_items": {
        pages: ["page-toc"] for pages in ("*", "generated/*", "reference/*")
    },
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}


sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"/\d\d_",
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("matplotlib", "tutorial_look.look"),
    "parallel": 2,
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "remove_config_comments": True,
    "capture_repr": ("_repr_html_",),  # not that of a legend
    "show_memory": False,
    "download_all_examples": False,
    "plot_gallery": "True",
    "min_reported_time": 0,
    "thumbnail_size": (400, 280),
    "matplotlib_animations": False,
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("ksdmin",),
    "reference_url": {"ksdmin": None},
}
