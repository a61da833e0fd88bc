"""Walk logs in offset order, on several threads."""
