"""The samples of a torch model: where they come from, and how they get to its device."""
