"""A backend for the Caesar server that answers from texts in a folder and uploaded files."""

from caesar_backend_folder.backend import FolderBackend
from caesar_backend_folder.options import FolderOptions

__all__ = ["FolderBackend", "FolderOptions"]
