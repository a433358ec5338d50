"""What is inside the wheels and sdists."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_wheels_hold_every_module_and_nothing_else(distributions) -> None:
    for distribution in distributions.values():
        package = distribution.source / distribution.name
        expected = {
            str(path.relative_to(distribution.source))
            for path in package.rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }
        names = distribution.wheel_names()
        installed = {name for name in names if ".dist-info/" not in name}
        assert installed == expected


def test_wheels_are_typed_and_say_their_licence(distributions) -> None:
    for distribution in distributions.values():
        assert f"{distribution.name}/py.typed" in distribution.wheel_names()
        assert distribution.metadata()["License"] == "Apache-2.0"
    assert any(
        name.endswith(".dist-info/licenses/LICENSE")
        for name in distributions["caesar_server"].wheel_names()
    )


def test_the_server_sdist_has_what_hosting_and_testing_need(distributions) -> None:
    names = distributions["caesar_server"].sdist_names()
    needed = {
        "CHANGES.rst",
        "CONTRIBUTING.rst",
        "LICENSE",
        "README.rst",
        "conftest.py",
        "docs/conf.py",
        "docs/index.rst",
        "gunicorn.conf.py",
        "pyproject.toml",
        "setup.cfg",
        "tests/architecture/test_layers.py",
        "wsgi.py",
    }
    assert needed - names == set()


def test_the_server_sdist_has_no_plugin_and_no_leftovers(distributions) -> None:
    names = distributions["caesar_server"].sdist_names()
    unwanted = ("backends/", "docs/_", ".venv", "build/")
    assert [name for name in names if name.startswith(unwanted) or "__pycache__" in name] == []
