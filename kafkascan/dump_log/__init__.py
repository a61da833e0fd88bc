"""What Kafka's ``kafka-dump-log`` prints, line for line."""
