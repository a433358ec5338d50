"""What stands in a path where a rule has a variable."""

from __future__ import annotations

from werkzeug.routing import BaseConverter

from caesar_server.web.framework.ids import plain_id


class IdConverter(BaseConverter):
    """Any word; a UUID in whatever case it is written."""

    part_isolating = True

    def to_python(self, value: str) -> str:
        """Return the id as it is stored."""
        return plain_id(value)
