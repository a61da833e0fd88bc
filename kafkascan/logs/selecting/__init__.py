"""Read the records that a condition may select: other partitions, segments and batches are not."""
