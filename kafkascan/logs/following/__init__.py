"""Follow logs while a broker appends to them."""
