"""Markdown tables."""


def markdown(header, rows):
    """A table; pipes within code would end a cell."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"
        for cells in lines
    )


def warn(message):
    """A warning of the build, and so an error."""
    from sphinx.util import logging

    logging.getLogger("ksdmin.docs").warning(message)
