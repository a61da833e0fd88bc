"""Segments in remote storage: what the cluster knows of them, what is stored, and both compared."""
