"""Salvage of many damaged logs, judged by an oracle that knows what was intact."""
