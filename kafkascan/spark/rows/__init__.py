"""Rows of one task: scan ranges of files and build Arrow record batches."""
