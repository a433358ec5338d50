"""Which processes live, by a clock that nobody can set, and what they can run."""
