"""Kafka as the oracle: real brokers write segments, Kafka's own tools describe them."""
