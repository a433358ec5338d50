"""A backend for the Caesar server that answers from a folder of text files."""

from caesar_backend_folder.backend import FolderBackend, FolderOptions

__all__ = ["FolderBackend", "FolderOptions"]
