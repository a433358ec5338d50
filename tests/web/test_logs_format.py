"""Log records as lines: what a person and what a machine reads."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from caesar_server.settings import Settings
from caesar_server.web.observing.exchange import Exchange, current_exchange, working_for
from caesar_server.web.observing.gunicorn_log import logger_class
from caesar_server.web.observing.logs import (
    JsonFormatter,
    TextFormatter,
    configure_logging,
    is_json,
    visible,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(message: str, *arguments: Any, level: int = logging.INFO, **extra: Any) -> Any:
    made = logging.getLogger("caesar_server.test")
    return made.makeRecord(made.name, level, __file__, 1, message, arguments, None, extra=extra)


def as_json(*arguments: Any, **fields: Any) -> dict[str, Any]:
    line = JsonFormatter().format(record(*arguments, **fields))
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def as_text(*arguments: Any, **fields: Any) -> str:
    return TextFormatter().format(record(*arguments, **fields))


def failure() -> Any:
    made = record("it broke", level=logging.ERROR, job_id="j-1")
    try:
        raise ValueError("first line\n[2026-01-01] [1] [INFO] forged: second line\x1b[31m")
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_json_line_has_time_level_logger_message_and_what_was_given() -> None:
    line = as_json("%s of %d", "one", 2, level=logging.WARNING, job_id="j-1", loop=3)
    assert line.pop("time").endswith("Z")
    assert isinstance(line.pop("process"), int)
    assert line == {
        "level": "warning",
        "logger": "caesar_server.test",
        "message": "one of 2",
        "job_id": "j-1",
        "loop": 3,
    }


def test_json_time_is_utc_in_milliseconds() -> None:
    made = record("now")
    made.created = 1_700_000_000.1239
    assert json.loads(JsonFormatter().format(made))["time"] == "2023-11-14T22:13:20.123Z"


@pytest.mark.parametrize(
    "value", [object(), {1: {"a"}}, {("a", "b"): 1}, "\ud800", b"\xff", float("nan"), 2**70]
)
def test_json_line_comes_out_whatever_the_value(value: object) -> None:
    assert as_json("odd", value=value)["message"] == "odd"


def test_json_line_comes_out_for_a_loop() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert as_json("loop", value=loop)["message"] == "loop"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("model", ["m\xfcdel", "\U0001f600", "a\u2028b", "\ud800 \xfc"])
def test_json_is_json_whatever_the_locale(
    encoding: str, model: str, root_logger: logging.Logger
) -> None:
    # as Python opens stderr
    written = io.TextIOWrapper(io.BytesIO(), encoding, "backslashreplace")
    configure_logging(Settings(log_format="json"), written)
    logging.getLogger("caesar_server.test").info("asked for %s", model, extra={"model": model})
    written.flush()
    (line,) = written.buffer.getvalue().decode(encoding).splitlines()
    told = json.loads(line)
    assert (told["message"], told["model"]) == (f"asked for {model}", model)


def test_json_has_the_traceback_in_the_same_record() -> None:
    line = json.loads(JsonFormatter().format(failure()))
    assert line["job_id"] == "j-1"
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert "forged: second line\x1b[31m" in line["exception"]


def test_text_is_one_line_with_pairs_at_its_end() -> None:
    line = as_text("done", status=200, model="gpt 4", empty="", ratio=0.5, flag=True)
    assert line.endswith(
        '[INFO] caesar_server.test: done status=200 model="gpt 4" empty="" ratio=0.5 flag=True'
    )


@pytest.mark.parametrize(
    "sent",
    [
        "a\nb",
        "a\r\nb",
        "a\x1b[2Jb",
        "a\x00b",
        "a\x7fb",
        "a\x9bb",
        "a\u2028b",
        "a\u202eb",
        "a\ud800b",
    ],
)
def test_text_shows_what_does_not_print_as_escapes(sent: str) -> None:
    line = as_text("got %s", sent, model=sent)
    assert line.isprintable()
    assert line.count("\\") >= 2


def test_text_cannot_be_given_a_pair_that_is_none() -> None:
    assert as_text("x", model='a" status=200').endswith(r'model="a\" status=200"')
    assert as_text("x", model="a=b").endswith('model="a=b"')


def test_text_indents_a_traceback_so_that_no_line_of_it_looks_like_a_record() -> None:
    first, *others = TextFormatter().format(failure()).split("\n")
    assert first.endswith("it broke job_id=j-1")
    assert others[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") and line.isprintable() for line in others)
    assert any("forged" in line for line in others)


def test_printable_text_stays_as_it_is() -> None:
    assert visible("Grüße, 世界 – ok") == "Grüße, 世界 – ok"


def test_records_name_the_request_that_their_thread_works_for() -> None:
    with working_for(Exchange(request_id="r-1")):
        assert as_json("inside")["request_id"] == "r-1"
        assert as_text("inside").endswith("inside request_id=r-1")
        assert as_json("inside", request_id="r-2")["request_id"] == "r-2"
    assert current_exchange() is None
    assert "request_id" not in as_json("outside")


@pytest.mark.parametrize(
    ("log_format", "stream", "expected"),
    [
        ("auto", Terminal(), False),
        ("auto", io.StringIO(), True),
        ("text", io.StringIO(), False),
        ("json", Terminal(), True),
    ],
)
def test_auto_is_text_on_a_terminal_only(log_format: Any, stream: Any, expected: bool) -> None:
    assert is_json(log_format, stream) is expected


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """Return the root logger; it and the server's are as before afterwards."""
    root, own = logging.getLogger(), logging.getLogger("caesar_server")
    before = list(root.handlers), root.level, own.level
    yield root
    logging.captureWarnings(False)
    root.handlers[:], root.level, own.level = before[0], before[1], before[2]
    root.manager._clear_cache()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("level", "own", "others"),
    [
        ("debug", {"debug", "info", "warning", "error"}, {"warning", "error"}),
        ("info", {"info", "warning", "error"}, {"warning", "error"}),
        ("error", {"error"}, {"error"}),
    ],
)
def test_level_is_the_servers_and_others_are_heard_from_warning_on(
    root_logger: logging.Logger, level: Any, own: set[str], others: set[str]
) -> None:
    stream = io.StringIO()
    configure_logging(Settings(log_level=level), stream)
    for name in ("caesar_server.somewhere", "httpx"):
        for severity in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger(name), severity)("%s", severity)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    heard = {
        name: {line["level"] for line in lines if line["logger"] == name}
        for name in ("caesar_server.somewhere", "httpx")
    }
    assert heard == {"caesar_server.somewhere": own, "httpx": others}


def test_configured_twice_writes_each_record_once(root_logger: logging.Logger) -> None:
    stream = io.StringIO()
    for _ in range(2):
        configure_logging(Settings(log_format="json"), stream)
    logging.getLogger("caesar_server").info("once")
    assert stream.getvalue().count("once") == 1


class GunicornConfig:
    """As much of gunicorn's configuration as its logger looks at."""

    loglevel = "info"
    capture_output = False
    errorlog = "-"
    accesslog = None
    syslog = False
    logconfig = logconfig_dict = logconfig_json = None

    def __init__(self, settings: Settings) -> None:
        self.logger_class = logger_class(settings)


def test_gunicorns_own_records_have_the_form_of_the_servers(
    root_logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    config = GunicornConfig(Settings(log_format="json"))
    log = config.logger_class(config)
    handlers = list(log.error_log.handlers)
    try:
        log.info("Booting %s", "a worker")
        # as gunicorn does it after a SIGHUP: the same object, a new configuration
        log.setup(GunicornConfig(Settings(log_format="text")))
        log.info("Booting another")
        first, second = capsys.readouterr().err.splitlines()
        assert json.loads(first)["message"] == "Booting a worker"
        assert second.endswith("[INFO] gunicorn.error: Booting another")
    finally:
        for handler in (*handlers, *log.error_log.handlers):
            log.error_log.removeHandler(handler)
