"""A backend that computes is refused where threads are greenlets."""

from __future__ import annotations

import pytest

from caesar_server.contract import Backend, Capabilities
from caesar_server.errors import BackendLoadError, SettingsError
from caesar_server.registry import Registry
from caesar_server.settings import Settings


class Waiting(Backend):
    def run(self, request, context):
        yield from ()


class Computing(Waiting):
    capabilities = Capabilities(cpu_bound=True)


class Broken(Waiting):
    contract_version = 99


BACKENDS = {"waiting": Waiting, "computing": Computing, "broken": Broken}


def registry(default: str, worker_class: str = "gevent") -> Registry:
    settings = Settings(default_backend=default, worker_class=worker_class)
    return Registry.of(BACKENDS, settings)


def test_threads_take_every_backend():
    threads = registry("computing", "gthread")
    assert isinstance(threads.load("computing"), Computing)
    threads.close()


def test_greenlets_take_only_those_that_wait():
    greenlets = registry("waiting")
    assert isinstance(greenlets.load("waiting"), Waiting)
    with pytest.raises(BackendLoadError):
        greenlets.load("computing")
    report = greenlets.report("computing")
    assert report.state == "failed"
    assert "keeps a core busy" in report.reason
    assert "gthread" in report.hint
    greenlets.close()


def test_only_a_default_backend_that_computes_is_refused_at_the_start():
    with pytest.raises(SettingsError, match=r"worker_class.*keeps a core busy"):
        registry("computing").refuse_cpu_bound_default()
    registry("waiting").refuse_cpu_bound_default()
    # broken under any worker: that is told where its failures are told
    registry("broken").refuse_cpu_bound_default()
