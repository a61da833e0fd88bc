"""Object stores: list, read and upload objects."""
