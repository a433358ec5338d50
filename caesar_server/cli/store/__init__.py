"""``caesar-server store``: which tables the database has, and how it gets those of this version."""

from caesar_server.cli.store.commands import store

__all__ = ["store"]
