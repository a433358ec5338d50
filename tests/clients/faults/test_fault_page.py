"""The manual's page on faults says what the installed clients do."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["openai-python", "langchain-openai", "openai-node"])
def test_the_page_tells_what_each_client_does(fault_page, fault_clients, name, request, tmp_path):
    if name == "openai-node":
        request.getfixturevalue("node")
    client = fault_clients.CLIENTS[name]
    seen = fault_page.section(name, client.version(), client.outcomes(tmp_path))
    assert seen in fault_page.PAGE.read_text(), f"write the page anew: {fault_page.COMMAND}"


def test_the_rest_of_the_page_is_up_to_date(fault_page, fault_clients):
    told = fault_page.PAGE.read_text()
    # whatever stands there for the clients
    sections = told.partition(fault_page.SECTIONS_BEGIN)[2]
    assert fault_page.page([sections]) == told
    assert [name for name in fault_clients.CLIENTS if f"\n{name} " not in f"\n{sections}"] == []


def test_node_takes_a_reset_for_the_end_where_connections_are_not_kept(
    fault_page, fault_clients, node, tmp_path
):
    (question,) = (
        question
        for question in fault_clients.LONGEST_FIRST
        if question.stream and question.case.name == "connection_reset, after_chunks 2"
    )
    with fault_clients.serve_in_process(tmp_path) as base_url:
        (outcome,) = fault_clients.ask_node(base_url, [question]).values()
    assert (outcome.text, outcome.error) == ("one two", None)
    with fault_clients.serve_by_command(tmp_path) as base_url:
        (outcome,) = fault_clients.ask_node(base_url, [question]).values()
    assert (outcome.text, outcome.error) == ("one two", "TypeError")
