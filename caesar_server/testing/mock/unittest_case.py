"""The mock for ``unittest``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from unittest import TestCase

from caesar_server.testing.mock.caesar_mock import CaesarMock
from caesar_server.testing.mock.naming import LONGEST_SLUG, scope_name
from caesar_server.testing.mock.server import MockServer, mock_server


class _MadeBy:
    """What stands in the place of an attribute until a method has made it."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __get__(self, instance: object, owner: type) -> Any:
        method = self._method
        if not issubclass(owner, TestCase):
            raise AttributeError(
                f"{owner.__name__} is no unittest.TestCase, whose {method}() makes it; a class of "
                "pytest's takes the fixture caesar_mock"
            )
        raise AttributeError(f"a {method} of your own begins with super().{method}()")


class CaesarMockMixin:
    """Gives each test of a ``TestCase`` a mock of its own, on one server for the class::

        class TestMyApp(CaesarMockMixin, unittest.TestCase):
            def test_it(self):
                self.caesar_mock.on(prompt="Hi").reply("Hello")
                run_my_app(base_url=self.caesar_mock.base_url + "/compat")
                self.caesar_mock.assert_requested(times=1)

    It stands before ``TestCase`` or ``IsolatedAsyncioTestCase`` among the bases.  A class with a
    ``setUp`` or ``setUpClass`` of its own calls that of ``super()``.
    """

    #: What :func:`mock_server` is given.
    caesar_mock_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    #: The server of the class.
    caesar_mock_server: ClassVar[MockServer] = _MadeBy("setUpClass")  # type: ignore[assignment]
    #: The mock of the test.
    caesar_mock: CaesarMock = _MadeBy("setUp")  # type: ignore[assignment]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        order = cls.__mro__
        if TestCase in order[: order.index(CaesarMockMixin)]:
            # whose setUp calls no other: there would be no mock, and nothing to say why
            raise TypeError(
                f"CaesarMockMixin stands before TestCase among the bases of {cls.__name__}"
            )

    @classmethod
    def setUpClass(cls) -> None:
        """Start the server."""
        super().setUpClass()  # type: ignore[misc]
        cls.caesar_mock_server = mock_server(**cls.caesar_mock_options)
        cls.caesar_mock_server.start()
        cls.addClassCleanup(cls.caesar_mock_server.stop)  # type: ignore[attr-defined]

    def setUp(self) -> None:
        """Make the mock of the test."""
        super().setUp()  # type: ignore[misc]
        test_id = self.id()  # type: ignore[attr-defined]
        name = test_id.rpartition(".")[2]
        # tests that a library makes of parameters may be called anything
        if not (name.isascii() and name.isidentifier() and len(name) <= LONGEST_SLUG):
            name = scope_name(test_id, name)
        server = self.caesar_mock_server
        self.caesar_mock = server.scope(server.free_name(name))
        # the last one that is added is the first one that is done: check, then close
        self.addCleanup(self.caesar_mock.close)  # type: ignore[attr-defined]
        self.addCleanup(self.caesar_mock.check)  # type: ignore[attr-defined]
