"""A self-hosted server for the Caesar research API."""

__version__ = "0.1.0"
