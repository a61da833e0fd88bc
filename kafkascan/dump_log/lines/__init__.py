"""Lines of batches and records, in pieces of bounded size."""
