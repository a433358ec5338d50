"""``caesar-server keys``: make, list and revoke API keys."""

from caesar_server.cli.keys.commands import keys

__all__ = ["keys"]
