"""Small problems of all families, for the comparison of kinds of step."""
