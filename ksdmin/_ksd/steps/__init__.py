"""The kinds of step, a file each; ``_ksd/chooser.py`` chooses among them."""
