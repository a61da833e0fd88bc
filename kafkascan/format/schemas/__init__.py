"""Kafka's generated messages: decoder, encoder, and the messages that logs contain."""
