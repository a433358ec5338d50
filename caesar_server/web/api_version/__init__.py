"""Dated versions of the native API: what is known, and which one a request speaks."""
