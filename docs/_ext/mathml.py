"""Formulas as MathML, which browsers draw themselves: no script, no network."""

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def visit_math(translator, node):
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def visit_displaymath(translator, node):
    translator.body.append(f'<div class="math">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
