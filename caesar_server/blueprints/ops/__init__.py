"""For the operator: whether the server lives and can answer."""
