"""The cluster's metadata from ``__cluster_metadata``, as a controller loads it (KIP-631)."""
