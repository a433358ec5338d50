"""The native surface's files and collections."""
