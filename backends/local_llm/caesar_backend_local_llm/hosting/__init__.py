"""Which models are loaded, and whose turn it is."""
