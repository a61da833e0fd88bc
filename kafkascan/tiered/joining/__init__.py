"""Local and remote segments of a partition as one log."""
