"""Load a log as a broker does after an unclean shutdown, and plan the file changes."""
