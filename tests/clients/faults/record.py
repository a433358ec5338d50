"""Writes the manual's page on faults anew: ``python tests/clients/faults/record.py``.

Needs the clients of the tests, Node.js and its packages among them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from fault_clients import CLIENTS
from fault_page import PAGE, page, section


def main() -> None:
    """Ask all clients and write the page."""
    sections = []
    for name, client in CLIENTS.items():
        with tempfile.TemporaryDirectory() as folder:
            sections.append(section(name, client.version(), client.outcomes(Path(folder))))
    PAGE.write_text(page(sections))


if __name__ == "__main__":
    main()
