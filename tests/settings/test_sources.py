"""Values from flags, environment and file: who wins, where it came from, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from caesar_server.errors import SettingsError
from caesar_server.settings import (
    LoadedSettings,
    ModelRoute,
    Settings,
    load_settings,
    setting_fields,
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Run in an empty folder, which no settings file of this repository reaches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def load(
    file: str = "", environ: dict[str, str] | None = None, cli: dict[str, object] | None = None
) -> LoadedSettings:
    write(Path("caesar-server.toml"), file)
    return load_settings(cli=cli or {}, environ=environ or {})


def problems(**sources) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(**sources)
    return list(caught.value.problems)


def users_own(folder: Path) -> str:
    return str(folder / "config" / "caesar-server" / "keys.json")


def users_store(folder: Path) -> str:
    return f"sqlite:///{folder}/state/caesar-server/jobs.sqlite3"


def test_nothing_given_is_the_defaults(folder) -> None:
    loaded = load_settings(environ={})
    assert loaded.settings == Settings(keys_file=users_own(folder), store=users_store(folder))
    assert set(loaded.origins.values()) == {"default"}
    assert set(loaded.origins) == set(setting_fields())


def test_command_line_wins_over_environment_over_file_over_default(folder) -> None:
    file = "port = 1\nworkers = 1\nthreads = 11"
    environ = {"CAESAR_SERVER_PORT": "2", "CAESAR_SERVER_WORKERS": "2"}
    loaded = load(file, environ, {"port": "3"})
    expected = Settings(
        port=3,
        workers=2,
        threads=11,
        keys_file=users_own(folder),
        store=users_store(folder),
    )
    assert loaded.settings == expected
    origins = loaded.origins
    assert origins["port"] == "command line"
    assert origins["workers"] == "environment CAESAR_SERVER_WORKERS"
    assert origins["threads"] == f"file {folder / 'caesar-server.toml'}"
    assert origins["host"] == "default"


def test_a_file_of_keys_that_is_named_is_the_one(folder) -> None:
    assert load(environ={"CAESAR_SERVER_KEYS_FILE": "k.json"}).settings.keys_file == "k.json"


def test_a_tilde_is_the_users_home_wherever_it_is_written(folder, monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    settings = load(
        'keys_file = "~/keys.json"',
        {"CAESAR_SERVER_STORE": "sqlite:///~/state/jobs.sqlite3"},
        {"files": "~/uploads"},
    ).settings
    assert settings.keys_file == "/home/me/keys.json"
    assert settings.store == "sqlite:////home/me/state/jobs.sqlite3"
    assert settings.files == "/home/me/uploads"


def test_the_file_that_the_environment_names_may_be_in_the_users_home(folder, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    (folder / "home").mkdir()
    (folder / "home" / "server.toml").write_text("port = 9000")
    assert load(environ={"CAESAR_SERVER_CONFIG": "~/server.toml"}).settings.port == 9000


@pytest.mark.parametrize("files", ["s3://bucket/~", "a/~", "~nobody-of-this-name/files"])
def test_any_other_tilde_is_a_name(files: str) -> None:
    assert load(cli={"files": files}).settings.files == files


def test_a_user_without_a_home_has_no_file_of_keys(monkeypatch) -> None:
    monkeypatch.setattr("platformdirs.user_config_path", lambda _: Path("~/.config"))
    assert load_settings(environ={}).settings.keys_file is None


def test_process_environment_is_read_unless_another_is_given(monkeypatch) -> None:
    monkeypatch.setenv("CAESAR_SERVER_PORT", "77")
    assert load_settings().settings.port == 77
    assert load_settings(environ={}).settings.port == 8000


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("port", "0", 0),
        ("request_timeout_s", "2.5", 2.5),
        ("insecure", "true", True),
        ("insecure", "0", False),
        ("unknown_model", "reject", "reject"),
        ("default_backend", "echo", "echo"),
        ("allowed_backends", "echo, mock", ("echo", "mock")),
        ("host", "", "127.0.0.1"),
        ("port", "", 8000),
        # as a Secret that was made from a file has it, and a file of variables from Windows
        ("default_backend", "echo\n", "echo"),
        ("port", "9000\r\n", 9000),
        ("api_keys", "0123456789abcdef\n", ("0123456789abcdef",)),
    ],
)
def test_variable_is_read_as_the_type_of_its_setting(name, text, value) -> None:
    settings = load(environ={f"CAESAR_SERVER_{name.upper()}": text}).settings
    assert getattr(settings, name) == value


@pytest.mark.parametrize("name", ["CAESAR_SERVER", "CAESAR_SERVER_METRICS"])
def test_what_kubernetes_says_of_a_service_of_that_name_is_passed_over(name: str) -> None:
    place = "tcp://10.96.12.7:8000"
    environ = {
        f"{name}_SERVICE_HOST": "10.96.12.7",
        f"{name}_SERVICE_PORT": "8000",
        f"{name}_SERVICE_PORT_HTTP_2": "8000",
        f"{name}_PORT": place,
        f"{name}_PORT_8000_TCP": place,
        f"{name}_PORT_8000_TCP_PROTO": "tcp",
        f"{name}_PORT_8000_TCP_PORT": "8000",
        f"{name}_PORT_8000_TCP_ADDR": "10.96.12.7",
        f"{name}_PORT_9000_UDP": "udp://10.96.12.7:9000",
    }
    assert load(environ=environ).settings == load().settings
    assert load(environ={**environ, "CAESAR_SERVER_PORT": "9000"}).settings.port == 9000


def test_options_of_backends_may_be_called_as_what_kubernetes_says() -> None:
    loaded = load(environ={"CAESAR_SERVER_BACKENDS__ECHO__SERVICE_HOST": "10.0.0.1"})
    assert loaded.settings.backends == {"echo": {"service_host": "10.0.0.1"}}


def test_tables_of_the_file(folder) -> None:
    loaded = load(
        """
        [models."gpt-4.1"]
        backend = "upstream"
        model = "gpt-x"
        [models."claude-*"]
        backend = "upstream"
        options = { temperature = 1 }
        [backends.upstream]
        url = "http://localhost:1"
        headers = { x-a = "1" }
        """
    )
    assert list(loaded.settings.models) == ["gpt-4.1", "claude-*"]
    assert loaded.settings.models["gpt-4.1"] == ModelRoute(backend="upstream", model="gpt-x")
    assert loaded.settings.models["claude-*"].options == {"temperature": 1}
    assert loaded.settings.backends["upstream"]["headers"] == {"x-a": "1"}
    assert loaded.origins["backends.upstream.url"] == f"file {folder / 'caesar-server.toml'}"


def test_variable_steps_into_a_table_and_wins_over_the_file_there() -> None:
    loaded = load(
        '[backends.local_llm]\nmodel_path = "a.gguf"\ngreeting = "Hi"\n[backends.echo]\nx = 1',
        {"CAESAR_SERVER_BACKENDS__LOCAL_LLM__MODEL_PATH": "b.gguf"},
    )
    assert loaded.settings.backends == {
        "local_llm": {"model_path": "b.gguf", "greeting": "Hi"},
        "echo": {"x": 1},
    }
    assert loaded.origins["backends.local_llm.model_path"] == (
        "environment CAESAR_SERVER_BACKENDS__LOCAL_LLM__MODEL_PATH"
    )


def test_other_files_can_be_named(folder) -> None:
    other = write(folder / "other.toml", "port = 5")
    third = write(folder / "third.toml", "port = 6")
    write(folder / "caesar-server.toml", "port = 4")
    environ = {"CAESAR_SERVER_CONFIG": str(other)}
    assert load_settings(environ={}).settings.port == 4
    assert load_settings(environ=environ).settings.port == 5
    assert load_settings(environ=environ, config=third).settings.port == 6


def test_byte_order_mark_is_no_part_of_the_file(folder) -> None:
    (folder / "caesar-server.toml").write_bytes(b"\xef\xbb\xbfport = 4")
    assert load_settings(environ={}).settings.port == 4


def test_missing_named_file_is_refused(folder) -> None:
    path = folder / "none.toml"
    with pytest.raises(SettingsError, match=f"{path}: does not exist .--config names it"):
        load_settings(environ={}, config=path)
    with pytest.raises(SettingsError, match=r"does not exist \(CAESAR_SERVER_CONFIG"):
        load_settings(environ={"CAESAR_SERVER_CONFIG": str(path)})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"port = 1\nhost = \n", ["is not valid TOML", "line 2"]),
        (b"port = 1\nport = 2", ["is not valid TOML"]),
        (b"host = '\xff'", ["is not UTF-8"]),
        (None, ["cannot be read"]),
    ],
)
def test_unreadable_file_is_named_with_the_reason(folder, content, words) -> None:
    path = folder / "caesar-server.toml"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(SettingsError) as caught:
        load_settings(environ={})
    (problem,) = caught.value.problems
    assert problem.startswith(f"file {path}: ")
    assert all(word in problem for word in words), problem


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ({"file": "prot = 1"}, "FILE: prot: unknown; did you mean port?"),
        ({"file": "max-body-bytes = 9"}, "did you mean max_body_bytes?"),
        (
            {"file": '[models.m]\nbackend = "echo"\nbakend = 1'},
            "FILE: models.m.bakend: unknown; did you mean models.m.backend?",
        ),
        (
            {"environ": {"CAESAR_SERVER_PROT": "1"}},
            "environment: CAESAR_SERVER_PROT: unknown; did you mean CAESAR_SERVER_PORT?",
        ),
        (
            {"environ": {"CAESAR_SERVER_max_body_bytes": "1"}},
            "CAESAR_SERVER_max_body_bytes: unknown; did you mean CAESAR_SERVER_MAX_BODY_BYTES?",
        ),
        (
            {"environ": {"CAESAR_SERVER_CONFG": "1"}},
            "CAESAR_SERVER_CONFG: unknown; did you mean CAESAR_SERVER_CONFIG?",
        ),
        # like none of them, but for what all begin with
        ({"environ": {"CAESAR_SERVER_TZ_X": "1"}}, "CAESAR_SERVER_TZ_X: unknown; known: "),
        ({"cli": {"prot": "1"}}, "command line: prot: unknown; did you mean port?"),
        ({"file": 'port = "x"'}, "FILE: port: expected integer, got 'x'"),
        ({"file": "port = true"}, "FILE: port: expected integer, got True"),
        ({"file": "port = 70000"}, "FILE: port: expected 0 to 65535, got 70000"),
        ({"cli": {"threads": "7"}}, "command line: threads: expected 8 to 4096, got 7"),
        (
            {"environ": {"CAESAR_SERVER_REQUEST_TIMEOUT_S": "nan"}},
            "environment CAESAR_SERVER_REQUEST_TIMEOUT_S: request_timeout_s: expected 0.1 to 86400",
        ),
        (
            {"environ": {"CAESAR_SERVER_UNKNOWN_MODEL": "refuse"}},
            "unknown_model: expected one of default, reject, got 'refuse'",
        ),
        ({"environ": {"CAESAR_SERVER_PORT__X": "1"}}, "environment CAESAR_SERVER_PORT__X: port: "),
        ({"environ": {"CAESAR_SERVER_PORT": "10.0.0.1:80"}}, "port: expected integer"),
        ({"environ": {"CAESAR_SERVER_PORT_NUMBER": "80"}}, "CAESAR_SERVER_PORT_NUMBER: unknown"),
        ({"file": "allowed_hosts = [1]"}, "FILE: allowed_hosts: expected list of strings"),
        ({"file": 'models = "gpt"'}, "FILE: models: expected a table"),
        (
            {"file": "[backends.mock]\nseed = 1", "environ": {"CAESAR_SERVER_BACKENDS": "{}"}},
            "environment CAESAR_SERVER_BACKENDS: backends: expected a table",
        ),
        ({"file": '[models.m]\nmodel = "x"'}, "FILE: models.m.backend: required and missing"),
    ],
)
def test_bad_value_is_refused_with_its_place_and_cure(folder, sources, problem) -> None:
    (found,) = problems(**sources)
    assert problem.replace("FILE", f"file {folder / 'caesar-server.toml'}") in found


def test_all_problems_are_told_at_once() -> None:
    found = problems(
        file='hots = "x"\nthreads = 1',
        environ={"CAESAR_SERVER_WORKERS": "none", "CAESAR_SERVER_X": "1"},
        cli={"port": "-1"},
    )
    assert len(found) == 5
    for word in ("hots", "threads", "CAESAR_SERVER_WORKERS", "CAESAR_SERVER_X", "port"):
        assert any(word in problem for problem in found)


def test_what_may_be_a_secret_is_not_quoted() -> None:
    for sources in (
        {"file": 'backends = "hush"'},
        {"file": '[backends]\nupstream = "hush"'},
        {"environ": {"CAESAR_SERVER_BACKENDS__UPSTREAM": "hush"}},
        {"file": '[models.m]\nbackend = "echo"\noptions = "hush"'},
    ):
        (problem,) = problems(**sources)
        assert "expected a table" in problem
        assert "hush" not in problem


def test_problem_found_later_can_be_located(folder) -> None:
    loaded = load('default_backend = "ehco"\n[models.m]\nbackend = "x"')
    file = f"file {folder / 'caesar-server.toml'}"
    assert loaded.locate("default_backend: unknown") == f"{file}: default_backend: unknown"
    assert loaded.locate("models.m.backend: unknown") == f"{file}: models.m.backend: unknown"
    assert loaded.locate("port: taken") == "port: taken"
    assert loaded.locate("something else") == "something else"
