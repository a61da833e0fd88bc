"""Options of a read: names, values, conditions, schemas."""
