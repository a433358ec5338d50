"""The mock for tests in Python: what to answer, what to spoil, what was asked."""
