"""The views of the journal."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from flask import Blueprint, Response, jsonify

from caesar_server.blueprints.mock.control.bodies import (
    CheckData,
    JournalQuery,
    SearchData,
    current_scope,
    filter_of,
    read_body,
    read_query,
)
from caesar_server.errors import CheckFailedError, NotFoundError, ValidationFailedError
from caesar_server.mock.journal import Entry, Journal, NotReachedError
from caesar_server.mock.journal.export import entry_json, to_json
from caesar_server.mock.journal.har import to_har
from caesar_server.mock.scopes import Scopes
from caesar_server.web.errors import printable


class JournalViews:
    """Each works on the scope that the request names."""

    def __init__(self, scopes: Scopes) -> None:
        self._scopes = scopes

    def add_to(self, blueprint: Blueprint) -> None:
        """Give ``blueprint`` these views."""
        blueprint.get("/journal")(self.show_mock_journal)
        blueprint.delete("/journal")(self.empty_mock_journal)
        blueprint.post("/journal/search")(self.search_mock_journal)
        blueprint.post("/journal/check")(self.check_mock_journal)
        blueprint.get("/journal/<path:entry_id>")(self.show_mock_entry)

    def show_mock_journal(self) -> Response:
        """``GET /_mock/journal``: what reached the mock, as JSON or as a HAR file."""
        query = read_query(JournalQuery, numbers=("status", "last"))
        return _exported(current_scope(self._scopes).journal, query, query.format)

    def empty_mock_journal(self) -> Response:
        """``DELETE /_mock/journal``: forget all entries and totals."""
        journal = current_scope(self._scopes).journal
        journal.reset()
        return jsonify(to_json((), journal.totals()))

    def search_mock_journal(self) -> Response:
        """``POST /_mock/journal/search``: entries that meet conditions."""
        data = read_body(SearchData, optional=True)
        return _exported(current_scope(self._scopes).journal, data, "json")

    def check_mock_journal(self) -> Response:
        """``POST /_mock/journal/check``: 200 if so many entries are there, else 409 and why."""
        data = read_body(CheckData, optional=True)
        least, most, expected = _bounds(data)
        wanted = filter_of(data)
        journal = current_scope(self._scopes).journal
        try:
            found = journal.wait_for(least, data.timeout_s, wanted, ended=data.finished)
        except NotReachedError as error:
            found = error.found
        # nobody knows what those were that are gone
        uncertain = isfinite(most) and journal.totals().dropped > 0
        if uncertain or not least <= len(found) <= most:
            raise CheckFailedError(journal.explain(wanted, expected, len(found)))
        return jsonify({"matched": len(found), "ids": [entry.id for entry in found]})

    def show_mock_entry(self, entry_id: str) -> Response:
        """``GET /_mock/journal/{entry_id}``: one entry."""
        entry = current_scope(self._scopes).journal.entry(entry_id)
        if entry is None:
            raise NotFoundError(
                f"No entry has the id '{printable(entry_id)}' in the journal of this scope"
            )
        return jsonify(entry_json(entry))


def _exported(journal: Journal, data: JournalQuery | SearchData, format: str) -> Response:
    entries = _newest(journal.entries(filter_of(data)), data.last)
    return jsonify(to_har(entries) if format == "har" else to_json(entries, journal.totals()))


def _newest(entries: Sequence[Entry], last: int | None) -> Sequence[Entry]:
    return entries if last is None else entries[-last:]


def _bounds(data: CheckData) -> tuple[int, float, str]:
    """Return least, most and words for what a check expects."""
    if data.times is not None:
        if data.at_least is not None or data.at_most is not None:
            raise ValidationFailedError(
                "times: expected either times, or at_least and at_most", param="times"
            )
        return data.times, data.times, f"exactly {data.times}"
    if data.at_most is None:
        least = 1 if data.at_least is None else data.at_least
        return least, float("inf"), f"at least {least}"
    least, most = data.at_least or 0, data.at_most
    if least > most:
        raise ValidationFailedError("at_least: is more than at_most", param="at_least")
    return least, most, f"{least} to {most}" if least else f"at most {most}"
