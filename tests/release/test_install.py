"""The wheels in a clean environment: what somebody gets who has only pip."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

import caesar_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


#: What some modules are for, and who uses them has.  Two further ones are not imported but run, by
#: Python and by Alembic.
OPTIONAL = ("boto3", "botocore", "gevent", "jmespath", "psycopg", "pytest", "yaml")
IMPORT_ALL = f"""
import importlib, pkgutil, caesar_server
for module in pkgutil.walk_packages(caesar_server.__path__, "caesar_server."):
    if module.name not in ("caesar_server.__main__", "caesar_server.store.migrations.env"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if error.name not in {OPTIONAL}:
                raise
print(caesar_server.__file__)
"""


def test_every_module_can_be_imported(environment) -> None:
    printed = environment.run("python", "-W", "error", "-c", IMPORT_ALL)
    assert str(environment.folder) in printed


def test_the_program_tells_its_version(environment) -> None:
    assert caesar_server.__version__ in environment.run("caesar-server", "--version")
    as_module = environment.run("python", "-m", "caesar_server", "--version")
    assert caesar_server.__version__ in as_module


def test_the_backends_are_found(environment) -> None:
    listed = json.loads(environment.run("caesar-server", "backends", "--json"))["backends"]
    assert {entry["name"]: entry["state"] for entry in listed} == {
        "mock": "loaded",
        "echo": "loaded",
        "local_llm": "loaded",
        "upstream": "loaded",
    }


def test_it_serves_a_completion(environment, serve, tmp_path: Path) -> None:
    program = environment.program("caesar-server")
    command = lambda port: [program, "serve", "--port", str(port)]  # noqa: E731
    with serve(command, tmp_path, environment.variables()) as port:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/compat/completions",
            json.dumps({"model": "echo", "prompt": "To be"}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            body = json.load(response)
    assert body["choices"][0]["text"] == "To be"
