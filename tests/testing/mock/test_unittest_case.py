"""The mix-in for ``unittest``, with test cases as testers write them."""

from __future__ import annotations

import asyncio
import json
import unittest
import urllib.request

import pytest

from caesar_server.testing import CaesarMockMixin


def ask(mock, prompt: str = "Hi") -> str:
    body = json.dumps({"model": "any", "prompt": prompt}).encode()
    url, headers = f"{mock.base_url}/compat/completions", {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
        return json.load(answer)["choices"][0]["text"]


def run(*cases: type[unittest.TestCase]) -> unittest.TestResult:
    loader, result = unittest.TestLoader(), unittest.TestResult()
    unittest.TestSuite(map(loader.loadTestsFromTestCase, cases)).run(result)
    return result


def words(result: unittest.TestResult) -> str:
    return "\n".join(text for _, text in (*result.errors, *result.failures))


class MyApp(CaesarMockMixin, unittest.TestCase):
    __test__ = False  # pytest shall leave it to the tests below, as the others
    caesar_mock_options = {"fallback": {"text": "Whatever"}}  # noqa: RUF012

    def test_one(self):
        self.caesar_mock.on(prompt="Hi").reply("Hello")
        assert [ask(self.caesar_mock), ask(self.caesar_mock, "Ho")] == ["Hello", "Whatever"]
        self.caesar_mock.assert_requested(times=2)

    def test_two(self):
        assert ask(self.caesar_mock) == "Whatever"
        self.caesar_mock.assert_requested(times=1)
        assert self.caesar_mock.name == "test_two"


class MyAsyncApp(CaesarMockMixin, unittest.IsolatedAsyncioTestCase):
    __test__ = False

    async def test_it(self):
        self.caesar_mock.on().reply("Hello")
        waiting = asyncio.create_task(self.caesar_mock.wait_for_async(1))
        assert await asyncio.to_thread(ask, self.caesar_mock) == "Hello"
        assert len(await waiting) == 1


class Careless(CaesarMockMixin, unittest.TestCase):
    __test__ = False

    def test_it(self):
        self.caesar_mock.on(prompt="Hi")


def test_each_test_has_a_mock_of_its_own():
    result = run(MyApp, MyAsyncApp)
    assert (result.testsRun, words(result)) == (3, "")


def test_a_test_may_be_called_anything():
    class Parameters(CaesarMockMixin, unittest.TestCase):
        __test__ = False

    def ask_it(self):
        assert ask(self.caesar_mock) == "Hi"

    for name in ("test_a/b", "test_3.14", "test_" + "x" * 300, "test_é"):
        setattr(Parameters, name, ask_it)
    result = run(Parameters)
    assert (result.testsRun, words(result)) == (4, "")


def test_what_the_test_cannot_see_is_an_error_at_its_end():
    result = run(Careless)
    assert "says when, but not what" in words(result)


class Forgetful(CaesarMockMixin, unittest.TestCase):
    __test__ = False

    def setUp(self):
        """Make no mock."""

    def test_it(self):
        ask(self.caesar_mock)


class ForgetfulClass(CaesarMockMixin, unittest.TestCase):
    __test__ = False

    @classmethod
    def setUpClass(cls):
        """Start no server."""

    def test_it(self):
        ask(self.caesar_mock)


def test_a_set_up_that_forgets_the_mock_is_told_what_to_call():
    assert "a setUp of your own begins with super().setUp()" in words(run(Forgetful))
    assert "a setUpClass of your own begins with super().setUpClass()" in words(run(ForgetfulClass))
    assert not hasattr(Forgetful("test_it"), "caesar_mock")


def test_a_class_that_is_no_test_case_is_told_so():
    class Plain(CaesarMockMixin):
        __test__ = False

    with pytest.raises(
        AttributeError, match=r"Plain is no unittest.TestCase, whose setUp\(\) makes"
    ):
        Plain().caesar_mock.on()


@pytest.mark.parametrize("case", [unittest.TestCase, unittest.IsolatedAsyncioTestCase])
def test_the_wrong_order_of_bases_is_refused(case):
    with pytest.raises(TypeError, match="stands before TestCase among the bases of Late"):
        type("Late", (case, CaesarMockMixin), {})
