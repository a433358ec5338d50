"""Numbers in files that the worker processes of a server share."""
