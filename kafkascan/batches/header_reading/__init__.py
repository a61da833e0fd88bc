"""Ways to read the batch headers of a source, and the choice between them."""
