"""Which batches and records the commands about files show."""
