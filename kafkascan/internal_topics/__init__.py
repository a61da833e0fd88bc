"""Kafka's own topics: what their records say."""
