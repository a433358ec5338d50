"""The native research API: Caesar's own wire."""
