"""``caesar-server jobs`` and ``caesar-server worker``: look at stored jobs, and run them."""

from caesar_server.cli.jobs.commands import jobs
from caesar_server.cli.jobs.worker import worker

__all__ = ["jobs", "worker"]
