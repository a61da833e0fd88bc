"""Kafka's generated messages: how they are encoded, and those that logs hold."""
