"""Ids as clients write them."""

from __future__ import annotations

import pytest

from caesar_server.web.framework.ids import plain_id


def test_a_uuid_is_the_same_in_capitals() -> None:
    assert plain_id("9C6F8B1A-2a4f-4A35-86B9-0D0B5E25D5E5") == (
        "9c6f8b1a-2a4f-4a35-86b9-0d0b5e25d5e5"
    )


@pytest.mark.parametrize(
    "written",
    [
        "Report-A",
        "9C6F8B1A2A4F4A3586B90D0B5E25D5E5",
        "{9C6F8B1A-2A4F-4A35-86B9-0D0B5E25D5E5}",
        "9C6F8B1A-2A4F-4A35-86B9-0D0B5E25D5E5\n",
        "9C6F8B1A-2A4F-4A35-86B9-0D0B5E25D5\u0410A",
    ],
)
def test_what_is_no_uuid_stays_as_it_is(written: str) -> None:
    assert plain_id(written) == written
