"""Lines of batches and records, in chunks of bounded size."""
