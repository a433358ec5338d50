"""Uploads in ``multipart/form-data``, read in pieces: names, types and bytes of one file."""

from caesar_server.web.uploads.form import MAX_PARTS
from caesar_server.web.uploads.receiving import Upload, received

__all__ = ["MAX_PARTS", "Upload", "received"]
