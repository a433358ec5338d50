"""For the operator: whether the server lives and can answer, and how it is spoken to."""
