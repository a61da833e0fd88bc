"""Queries on segment files: which ones to read, where to begin, and which rows to return."""
