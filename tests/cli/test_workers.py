"""What a worker does at its beginning and at its end, asked directly."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

from caesar_server.app import create_app
from caesar_server.cli.gunicorn_options import begin_work, close_app
from caesar_server.settings import Settings


class Circle:
    """Garbage that only a look for garbage finds."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_loaded_is_left_out_of_the_looks_for_garbage_until_the_end() -> None:
    app = create_app(Settings(default_backend="mock"))
    worker = SimpleNamespace(wsgi=app)
    frozen_before = gc.get_freeze_count()
    loaded, garbage = Circle(), Circle()
    ref, gone = weakref.ref(loaded), weakref.ref(garbage)
    del garbage
    begin_work(worker)
    try:
        assert gone() is None, "what is garbage at the beginning would stay for ever"
        assert gc.get_freeze_count() > frozen_before + 1000
        del loaded
        gc.collect()
        assert ref() is not None
        later = Circle()
        found = weakref.ref(later)
        del later
        gc.collect()
        assert found() is None, "garbage of requests is still found"
    finally:
        close_app(None, worker)
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert ref() is None
