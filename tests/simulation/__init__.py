"""Faults by seed: verbs that write files, on a disk that loses, tears and refuses writes."""
