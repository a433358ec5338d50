"""The manual's page says everything about each setting."""

from __future__ import annotations

import pytest
from docutils import nodes
from docutils.core import publish_doctree

from caesar_server.settings import (
    environment_name,
    flag_name,
    has_flag,
    is_table,
    setting_fields,
    settings_reference,
)


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """Parse the page, for which any complaint of docutils is an error; text by heading."""
    page = publish_doctree(settings_reference(), settings_overrides={"halt_level": 2})
    return {
        section.next_node(nodes.title).astext(): section.astext()
        for section in page.findall(nodes.section)
    }


@pytest.mark.parametrize("field", setting_fields().values(), ids=lambda field: field.name)
def test_setting_is_described(sections, field) -> None:
    text = sections[field.name]
    for part in (field.info.help, field.type_name, field.range, field.info.unit or ""):
        assert part in text
    if not is_table(field):
        assert environment_name(field.name) in text
    assert (flag_name(field.name) in text) == has_flag(field)


def test_numbers_are_written_out(sections) -> None:
    assert "1024 to 1073741824" in sections["max_body_bytes"]
    assert "10485760" in sections["max_body_bytes"]


def test_parts_of_a_route_are_described(sections) -> None:
    assert "must be set" in sections["models.NAME.backend"]
    assert {"models.NAME.model", "models.NAME.options"} <= set(sections)
