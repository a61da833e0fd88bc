"""Plan tasks: list files, cut them into ranges, resolve timestamps."""
