"""Grammars that a text must follow."""
