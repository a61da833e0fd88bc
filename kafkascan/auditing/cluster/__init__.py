"""Audit checks of a data dir against what Kafka's own topics in it say about its logs."""
