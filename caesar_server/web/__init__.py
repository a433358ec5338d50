"""HTTP that every surface shares: bodies, errors, streaming, request ids, hosts."""
