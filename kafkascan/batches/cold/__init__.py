"""Header walks over files that are not in the page cache."""
