"""Uploaded files as jobs see them: ids that are checked, paths that are lent, leftovers swept."""

from caesar_server.jobs.files.files import Files
from caesar_server.jobs.files.lending import Lent
from caesar_server.jobs.files.sweeping import Swept

__all__ = ["Files", "Lent", "Swept"]
