"""Whence a request may come: which names the server answers to, and which web pages may call it."""
