"""What is installed is found without importing it, and each name goes to one of them."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from caesar_server.errors import SettingsError
from caesar_server.registry import Candidate, Registry, discover, extra_candidates
from caesar_server.registry.files import load_class
from caesar_server.settings import Settings


def test_entry_points_are_found_with_their_distribution(site) -> None:
    site.add(
        "caesar-backend-one", {"one": "one_module:One", "uno": "one_module:Uno"}, version="2.3"
    )
    site.add("unrelated", {})
    assert {(c.name, c.entry_point, c.distribution, c.version) for c in site.candidates()} == {
        ("one", "one_module:One", "caesar-backend-one", "2.3"),
        ("uno", "one_module:Uno", "caesar-backend-one", "2.3"),
    }


def test_nothing_is_imported_before_it_is_asked_for(site) -> None:
    site.add("lazy", {"lazy": "lazy_module:Lazy"}, {"lazy_module": "raise RuntimeError"})
    registry = Registry(site.candidates(), Settings())
    assert registry.names == ("lazy",)
    assert registry.reports()[0].state == "available"
    assert "lazy_module" not in sys.modules


def test_unreadable_metadata_is_left_out_with_a_warning(site, caplog) -> None:
    site.add("fine", {"fine": "m:C"})
    site.add_raw("torn", "[caesar_server.backends]\nno equals sign")
    assert [candidate.name for candidate in site.candidates()] == ["fine"]
    assert "torn" in caplog.text


def test_distribution_that_is_on_the_path_twice_counts_once(site, tmp_path, monkeypatch) -> None:
    site.add("twin", {"twin": "m:C"}, version="1.0")
    other = type(site)(tmp_path / "other")
    other.path.mkdir()
    other.add("twin", {"twin": "m:C"}, version="2.0")
    monkeypatch.syspath_prepend(other.path)
    assert [c.version for c in discover() if c.name == "twin"] == ["2.0"]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("my_module:EchoBackend", "echo"),
        ("package.module:HelloWorldBackend", "hello_world"),
        ("m:Outer.InnerBackend", "inner"),
        ("m:Backend", "backend"),
        ("my_name=m:EchoBackend", "my_name"),
    ],
)
def test_extra_backend_is_named_by_its_class_or_by_hand(spec, name) -> None:
    (candidate,) = extra_candidates([spec])
    assert candidate.name == name
    assert candidate.entry_point == spec.rpartition("=")[2]


@pytest.mark.parametrize("spec", ["", "m", "m:", ":C", "m.C", "a b=m:C", "Upper=m:C", "a__b=m:C"])
def test_extra_backend_of_another_form_is_refused(spec) -> None:
    with pytest.raises(SettingsError, match=r"^extra_backends: "):
        extra_candidates([spec])


def test_first_extra_backend_is_the_default() -> None:
    settings = Settings(extra_backends=("m:ZBackend", "m:ABackend"))
    assert Registry(extra_candidates(settings.extra_backends), settings).default == "z"


def candidate(name: str, distribution: str | None, backend: object = None) -> Candidate:
    return Candidate(name, f"{distribution}:C", distribution, "1", lambda: backend)


@pytest.mark.parametrize(
    ("distributions", "winner"),
    [
        (("zebra", "ant"), "ant"),
        (("ant", "Caesar_Server"), "Caesar_Server"),
        (("ant", None), None),
        ((None, "caesar-server"), "caesar-server"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_one_of_two_with_one_name_wins_whatever_the_order(
    distributions, winner, turned, caplog
) -> None:
    found = [candidate("same", distribution) for distribution in distributions]
    with caplog.at_level(logging.WARNING, "caesar_server.registry"):
        registry = Registry(reversed(found) if turned else found, Settings())
    available, shadowed = sorted(registry.reports(), key=lambda report: report.state)
    assert (available.state, available.distribution) == ("available", winner)
    assert shadowed.state == "shadowed"
    assert shadowed.reason
    assert shadowed.hint
    assert "caesar" not in shadowed.hint.lower()  # nobody is to uninstall the server
    for distribution in distributions:
        assert (distribution or "extra_backends") in caplog.text
    assert any("two backends are called same" in warning for warning in registry.warnings)


@pytest.mark.parametrize("name", ["Upper", "with-dash", "a__b", "_a", "a/b", ""])
def test_bad_name_is_failed_with_a_reason(name) -> None:
    registry = Registry([candidate(name, "bad"), candidate("good", "fine")], Settings())
    assert registry.names == ("good",)
    (report,) = (report for report in registry.reports() if report.name == name)
    assert report.state == "failed"
    assert "cannot be a backend's name" in report.reason


def test_backend_that_is_not_allowed_is_never_imported(site, good_module) -> None:
    site.add("good", {"good": "good_module:GoodBackend"}, {"good_module": good_module})
    site.add("shy", {"shy": "shy_module:Shy"}, {"shy_module": "raise RuntimeError"})
    registry = Registry(site.candidates(), Settings(allowed_backends=("good",)))
    registry.load_all()
    registry.close()
    (report,) = (report for report in registry.reports() if report.name == "shy")
    assert report.state == "disabled"
    assert "allowed_backends" in report.reason
    assert "shy_module" not in sys.modules


def test_two_files_are_not_looked_for_at_once(tmp_path, monkeypatch) -> None:
    """What Python knows of folders is the process's: to forget it twice at once fails."""
    lone = threading.Lock()
    two_came = threading.Event()

    def forget() -> None:
        if not lone.acquire(blocking=False):
            two_came.set()
            return
        two_came.wait(0.2)
        lone.release()

    monkeypatch.setattr(importlib, "invalidate_caches", forget)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("race_one", "race_two"):
        (tmp_path / f"{name}.py").write_text(
            "from caesar_server.contract import Backend\n"
            "class One(Backend):\n    def run(self, request, context):\n        return iter(())\n"
        )
    with ThreadPoolExecutor(2, thread_name_prefix="test") as pool:
        found = [
            pool.submit(load_class, tmp_path / f"{name}.py", "One")
            for name in ("race_one", "race_two")
        ]
        assert [one.result().__module__ for one in found] == ["race_one", "race_two"]
    assert not two_came.is_set()
