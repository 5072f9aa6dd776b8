"""Markdown tables, made, read and folded."""


def markdown(header, rows):
    """A table; pipes within code would end a cell."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"
        for cells in lines
    )


def parsed(text):
    """The rows of a table, each a dictionary by the names of the columns.

    A second column of the same name gets a 2 behind it.
    """
    header, _, *rows = (
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in text.strip().splitlines()
    )
    names = [f"{name} 2" if name in header[:i] else name for i, name in enumerate(header)]
    return [dict(zip(names, row, strict=True)) for row in rows]


def folded(title, text):
    """What is read by those who ask for it."""
    return f"::::::{{dropdown}} {title}\n{text}\n::::::"


def warn(message):
    """A warning of the build, and so an error."""
    from sphinx.util import logging

    logging.getLogger("ksdmin.docs").warning(message)
