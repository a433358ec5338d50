"""The built-in backend ``mock``: answers that a test or a demonstration can foretell."""
