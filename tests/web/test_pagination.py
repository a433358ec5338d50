"""Lists in pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.datastructures import MultiDict

from caesar_server.errors import ValidationFailedError
from caesar_server.web.pagination import MAX_LIMIT, MAX_PAGE, Page, page_object, page_of


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ([], Page(1, 10)),
        ([("page", "3")], Page(3, 10)),
        ([("limit", "200"), ("page", "2")], Page(2, 200)),
        ([("limit", "1")], Page(1, 1)),
        ([("page", "007")], Page(7, 10)),
        ([("other", "x")], Page(1, 10)),
        ([("page", str(MAX_PAGE))], Page(MAX_PAGE, 10)),
    ],
)
def test_what_a_query_asks_for(query, page) -> None:
    assert page_of(MultiDict(query)) == page


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("page", "0", f"page: expected an integer from 1 to {MAX_PAGE}, got '0'"),
        ("page", "-1", f"page: expected an integer from 1 to {MAX_PAGE}, got '-1'"),
        ("page", "", f"page: expected an integer from 1 to {MAX_PAGE}, got ''"),
        ("page", "two", f"page: expected an integer from 1 to {MAX_PAGE}, got 'two'"),
        ("page", str(MAX_PAGE + 1), f"page: .* got '{MAX_PAGE + 1}'"),
        ("page", "9" * 5000, "page: .* got '9{60}...'"),
        ("limit", "201", "limit: expected an integer from 1 to 200, got '201'"),
        ("limit", "0", "limit: expected an integer from 1 to 200, got '0'"),
        ("limit", "1.0", "limit: .* got '1.0'"),
        ("limit", "+1", "limit: "),
        ("limit", " 1", "limit: "),
        ("limit", "1\n", r"limit: .* got '1\\n'"),
        ("limit", "٣", "limit: "),
        ("limit", "1_0", "limit: "),
    ],
)
def test_other_values_are_refused_with_the_parameter_and_its_range(name, value, message) -> None:
    with pytest.raises(ValidationFailedError, match=f"^{message}") as caught:
        page_of(MultiDict([(name, value)]))
    assert caught.value.param == name


@pytest.mark.parametrize("name", ["page", "limit"])
def test_a_parameter_that_is_there_twice_is_refused(name) -> None:
    with pytest.raises(
        ValidationFailedError, match=f"^{name}: expected one value, got 2"
    ) as caught:
        page_of(MultiDict([(name, "5"), ("other", "x"), (name, "5")]))
    assert caught.value.param == name


def test_the_last_offset_and_all_of_its_page_fit_into_a_database() -> None:
    assert Page(MAX_PAGE, MAX_LIMIT).offset + MAX_LIMIT + 1 < 2**63


@given(st.integers(0, 60), st.integers(1, 12))
def test_following_has_next_meets_each_item_once(count, limit) -> None:
    everything = list(range(count))
    seen, number, more = [], 1, True
    while more:
        page = Page(number, limit)
        found = everything[page.offset : page.offset + limit + 1]
        items, more = page.cut(found)
        assert len(items) <= limit
        assert items or count == 0
        seen += items
        number += 1
    assert seen == everything


def test_the_envelope() -> None:
    assert page_object(("a",), Page(2, 5), has_next=True, total=37) == {
        "data": ["a"],
        "pagination": {"page": 2, "limit": 5, "has_next": True, "total": 37},
    }
    assert page_object([], Page(), has_next=False) == {
        "data": [],
        "pagination": {"page": 1, "limit": 10, "has_next": False},
    }
