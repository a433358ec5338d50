"""Commands for testers: a mock server of its own process, and its fixture files."""
