"""The versions of the API: each module here is one, and calls it ``VERSION``."""
