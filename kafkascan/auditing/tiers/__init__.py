"""Audit of remote storage itself: objects, manifests, lineage, the catalogue of a broker."""
