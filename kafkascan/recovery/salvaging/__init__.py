"""Salvage of damaged logs: which batches are kept, which headers are repaired."""
