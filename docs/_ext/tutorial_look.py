"""How the figures of every tutorial look."""

import warnings


def look(gallery_conf, fname):
    """Called in the process that runs the tutorial, before each."""
    import matplotlib

    matplotlib.rcParams.update({"figure.dpi": 110, "font.size": 11, "axes.grid": True})
    matplotlib.rcParams.update({"grid.alpha": 0.25, "lines.linewidth": 1.8})
    # plt.show() has no window to show; the scripts end with it as anybody's do.
    warnings.filterwarnings("ignore", message=".*non-interactive, and thus cannot be shown")
