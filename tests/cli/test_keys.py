"""``caesar-server keys``: what is printed, what is kept, what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from caesar_server.cli.keys.moments import format_moment, parse_moment
from caesar_server.web.access.key_file import read_key_file
from caesar_server.web.access.keys import hash_key

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def path(folder) -> Path:
    (folder / "caesar-server.toml").write_text('keys_file = "keys.json"\n')
    return folder / "keys.json"


def stored(path: Path) -> list:
    found = read_key_file(path)
    assert found is not None
    return list(found[0])


def test_a_key_is_printed_once_and_only_its_hash_is_kept(run, path) -> None:
    result = run("keys", "create")
    assert result.exit_code == 0
    assert re.fullmatch(r"csk-[A-Za-z0-9_-]{43}\n", result.stdout)
    secret = result.stdout.strip()
    assert secret not in result.stderr
    assert str(path) in result.stderr
    (key,) = stored(path)
    assert key.sha256 == hash_key(secret)
    assert (key.account, key.name, key.api_version) == ("default", "", "2025-11-27")
    assert key.expires_at is None
    assert secret not in path.read_text()
    for command in (["list"], ["list", "--json"], ["show-limits"], ["show-limits", key.id]):
        told = run("keys", *command)
        assert key.id in told.stdout
        assert secret not in told.output
        assert key.sha256 not in told.output


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full here")
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_key_that_cannot_be_written_out_is_not_made(run, path, flags) -> None:
    run("keys", "create")
    command = [sys.executable, "-m", "caesar_server", "keys", "create", *flags]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert result.returncode == 1
    assert "the key cannot be written out, and is not made: No space left" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(stored(path)) == 1


def test_the_file_may_be_in_the_users_home(run, folder, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    (folder / "caesar-server.toml").write_text('keys_file = "~/keys.json"\n')
    assert run("keys", "create").exit_code == 0
    assert len(stored(folder / "home" / "keys.json")) == 1


def test_everything_about_a_key_can_be_said(run, path) -> None:
    flags = {
        "--account": "acme",
        "--name": "Björn's laptop",
        "--expires": "2100-02-03",
        "--version-pin": "2025-08-08",
        "--requests-per-minute": "60",
        "--streams": "4",
        "--jobs-in-progress": "5",
        "--loops-per-month": "200",
    }
    made = run("keys", "create", "--json", *(part for pair in flags.items() for part in pair))
    told = json.loads(made.stdout)
    (key,) = stored(path)
    assert hash_key(told["key"]) == key.sha256
    assert (told["id"], told["file"], told["status"]) == (key.id, str(path), "active")
    assert (key.account, key.name, key.api_version) == ("acme", "Björn's laptop", "2025-08-08")
    assert key.expires_at == datetime(2100, 2, 3, tzinfo=UTC)
    limits = {
        "requests_per_minute": 60,
        "streams": 4,
        "jobs_in_progress": 5,
        "loops_per_month": 200,
    }
    assert json.loads(run("keys", "show-limits", "--json").stdout) == {key.id: limits}
    row = run("keys", "show-limits", key.id).stdout.splitlines()[1]
    assert row.split() == [key.id, "acme", "60", "4", "5", "200"]
    (listed,) = json.loads(run("keys", "list", "--json").stdout)
    assert listed["limits"] == limits
    assert listed["expires_at"] == "2100-02-03T00:00:00Z"
    assert "sha256" not in listed
    head, row = run("keys", "list").stdout.splitlines()
    assert head.split() == [
        *("ID", "ACCOUNT", "NAME", "STATUS", "VERSION", "SHAPES", "CREATED", "EXPIRES")
    ]
    assert "Björn's laptop  active  2025-08-08  -  " in row


def test_a_key_may_be_for_the_go_client(run, path) -> None:
    run("keys", "create", "--cli-shapes")
    run("keys", "create")
    assert [key.cli_shapes for key in stored(path)] == [True, False]
    listed = json.loads(run("keys", "list", "--json").stdout)
    assert [key["cli_shapes"] for key in listed] == [True, False]
    rows = run("keys", "list").stdout.splitlines()[1:]
    assert [row.split()[5] for row in rows] == ["cli", "-"]


def test_limits_of_the_settings_are_shown_where_a_key_has_none(run, path) -> None:
    run("keys", "create")
    Path("caesar-server.toml").write_text(
        'keys_file = "keys.json"\nkey_requests_per_minute = 30\nkey_streams = 3\n'
    )
    row = run("keys", "show-limits").stdout.splitlines()[1]
    assert row.split()[1:] == ["default", "30", "3", "5", "200"]


def test_revoked_keys_stay_listed(run, path) -> None:
    run("keys", "create")
    run("keys", "create")
    first, second = stored(path)
    assert run("keys", "revoke", first.id).exit_code == 0
    first, second = stored(path)
    assert first.revoked_at is not None
    assert second.revoked_at is None
    rows = run("keys", "list").stdout.splitlines()[1:]
    assert ["revoked" in row for row in rows] == [True, False]
    again = run("keys", "revoke", first.id)
    assert again.exit_code == 1
    assert f"{first.id} was revoked at" in again.stderr


def test_expired_keys_are_said_to_be(run, path) -> None:
    run("keys", "create", "--expires", "30d")
    text = path.read_text()
    path.write_text(re.sub(r'("expires_at": )"[^"]*"', r'\1"2020-01-01T00:00:00Z"', text))
    assert "expired" in run("keys", "list").stdout


def test_keys_of_the_settings_are_listed_but_not_revoked_here(run, path, monkeypatch) -> None:
    secret = "given-key-of-some-length"
    monkeypatch.setenv("CAESAR_SERVER_API_KEYS", secret)
    name = f"given-{hash_key(secret)[:8]}"
    told = run("keys", "list")
    assert name in told.stdout
    assert secret not in told.output
    refused = run("keys", "revoke", name)
    assert refused.exit_code == 1
    assert "api_keys" in refused.stderr
    assert secret not in refused.output


def test_unknown_keys_are_refused_with_the_nearest(run, path) -> None:
    run("keys", "create")
    (key,) = stored(path)
    for command in ("revoke", "show-limits"):
        result = run("keys", command, key.id[:-1])
        assert result.exit_code == 1
        assert f"did you mean {key.id!r}?" in result.stderr


def test_without_keys_the_lists_are_empty(run, path) -> None:
    assert len(run("keys", "list").stdout.splitlines()) == 1
    assert json.loads(run("keys", "list", "--json").stdout) == []
    assert not path.exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--expires", "soon"], "is no period such as 30d"),
        (["--expires", "0d"], "is over"),
        (["--expires", "2020-01-01"], "is over"),
        (["--expires", "999999w"], "is no period"),
        (["--account", ""], "expected 1 to 200 printable characters"),
        (["--account", "a\nb"], "expected 1 to 200 printable characters"),
        (["--name", "x" * 201], "expected 0 to 200 printable characters"),
        (["--version-pin", "2024-01-01"], "2025-08-08"),
        (["--requests-per-minute", "0"], "1<=x<="),
        (["--streams", "many"], "not a valid integer"),
    ],
)
def test_bad_values_are_refused_and_nothing_is_written(run, path, flags, words) -> None:
    result = run("keys", "create", *flags)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert not path.exists()


def test_a_file_that_others_can_read_is_refused_with_the_cure(run, path) -> None:
    run("keys", "create")
    path.chmod(0o644)
    for command in (["create"], ["list"], ["revoke", "key-1"], ["show-limits"]):
        result = run("keys", *command)
        assert result.exit_code == 2
        assert "chmod 600" in result.stderr
        assert "Traceback" not in result.output


def test_another_file_can_be_named(run, folder) -> None:
    run("keys", "create", "--keys-file", "other.json")
    assert len(stored(folder / "other.json")) == 1
    assert len(run("keys", "list", "--keys-file", "other.json").stdout.splitlines()) == 2


def test_the_default_is_in_the_users_own_folder(run, folder, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("HOME", str(folder))
    assert run("keys", "create").exit_code == 0
    (path,) = folder.rglob("keys.json")
    values = json.loads(run("settings", "--json").stdout)
    assert values["keys_file"] == {"value": str(path), "origin": "default"}


def test_help_names_every_subcommand(run) -> None:
    text = run("keys", "--help").stdout
    for name in ("create", "list", "revoke", "show-limits"):
        assert re.search(rf"^  {name} +[A-Z]", text, re.MULTILINE)
        assert run("keys", name, "--help").exit_code == 0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("90m", NOW + timedelta(minutes=90)),
        ("12h", NOW + timedelta(hours=12)),
        ("30d", NOW + timedelta(days=30)),
        ("2w", NOW + timedelta(weeks=2)),
        ("2026-12-31", datetime(2026, 12, 31, tzinfo=UTC)),
        ("2026-12-31T18:00", datetime(2026, 12, 31, 18, tzinfo=UTC)),
        ("2026-12-31T18:00:00+02:00", datetime(2026, 12, 31, 16, tzinfo=UTC)),
        ("2026-12-31T18:00:00Z", datetime(2026, 12, 31, 18, tzinfo=UTC)),
    ],
)
def test_moments_as_people_write_them(text, moment) -> None:
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "d", "-1d", "1y", "1.5d", "tomorrow", "2026-13-01", "30 d"])
def test_what_is_no_moment(text) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_moment(text, NOW)


def test_moments_are_shown_in_utc() -> None:
    assert format_moment(NOW) == "2026-01-31T12:00:00Z"
    assert format_moment(None) == "-"
