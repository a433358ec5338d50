"""The file of keys: whole or not at all, for its owner alone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesar_server.errors import SettingsError
from caesar_server.web.access.key_file import (
    decode_keys,
    edit_key_file,
    encode_keys,
    read_key_file,
    stamp_of,
)
from caesar_server.web.access.keys import API_VERSIONS, Key, KeyLimits, generate_id, hash_key

PLACE = Path("keys.json")
PRINTABLE = st.characters(exclude_categories=["Cs", "Cc"])
COUNTS = st.none() | st.integers(1, 1_000_000_000)
MOMENTS = st.none() | st.datetimes(
    datetime(2000, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)
)
KEYS = st.lists(
    st.builds(
        Key,
        id=st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True),
        sha256=st.binary(min_size=32, max_size=32).map(bytes.hex),
        account=st.text(PRINTABLE, min_size=1, max_size=200),
        name=st.text(PRINTABLE, max_size=200),
        api_version=st.sampled_from(API_VERSIONS),
        limits=st.builds(
            KeyLimits,
            requests_per_minute=COUNTS,
            streams=COUNTS,
            jobs_in_progress=COUNTS,
            loops_per_month=COUNTS,
        ),
        created_at=MOMENTS,
        expires_at=MOMENTS,
        revoked_at=MOMENTS,
    ),
    max_size=5,
    unique_by=(lambda key: key.id, lambda key: key.sha256),
).map(tuple)


@given(KEYS)
def test_keys_come_back_as_they_were_written(keys) -> None:
    assert decode_keys(PLACE, encode_keys(keys)) == keys


def test_a_byte_order_mark_and_windows_line_ends_are_read() -> None:
    keys = (Key(id="a", sha256=hash_key("secret"), account="a", api_version=API_VERSIONS[0]),)
    content = b"\xef\xbb\xbf" + encode_keys(keys).replace(b"\n", b"\r\n")
    assert decode_keys(PLACE, content) == keys


@given(st.binary(max_size=300) | KEYS.map(encode_keys).flatmap(lambda b: st.just(b[: len(b) // 2])))
def test_other_content_is_refused_with_the_files_name(content) -> None:
    with pytest.raises(SettingsError, match=r"^keys_file: keys\.json "):
        decode_keys(PLACE, content)


def key(account: str = "acme", secret: str | None = None) -> Key:
    name = generate_id()
    return Key(id=name, sha256=hash_key(secret or name), account=account)


def document(**fields: object) -> dict:
    one = {"id": "k", "sha256": hash_key("k"), "account": "a", **fields}
    return {"version": 1, "keys": [one]}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"version": 2, "keys": []},
        {"version": 1, "keys": [], "more": 1},
        document(expire_at="2030-01-01T00:00:00Z"),
        document(expires_at="2030-01-01T00:00:00"),
        document(sha256="csk-a-key-in-clear-by-mistake"),
        document(sha256=hash_key("k").upper()),
        document(account=""),
        document(account="a\nb"),
        document(id="a b"),
        document(id="k\n"),
        document(api_version="2024-01-01"),
        document(limits={"requests_per_minute": 0}),
        document(limits={"stream": 1}),
        {"version": 1, "keys": [*document()["keys"], *document()["keys"]]},
    ],
    ids=str,
)
def test_what_is_not_understood_is_refused_and_not_quoted(content) -> None:
    with pytest.raises(SettingsError) as caught:
        decode_keys(PLACE, json.dumps(content).encode())
    assert "in-clear" not in str(caught.value)


def test_no_file_is_no_error(tmp_path) -> None:
    assert read_key_file(tmp_path / "none" / "keys.json") is None
    assert read_key_file(Path("/dev/null/none")) is None
    assert stamp_of(Path("/dev/null/none")) is None


def test_file_and_folder_are_made_for_their_owner_alone(tmp_path) -> None:
    path = tmp_path / "a" / "b" / "keys.json"
    old = os.umask(0)
    try:
        edit_key_file(path, lambda keys: (*keys, key()))
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for beside in path.parent.iterdir():
        assert beside.stat().st_mode & 0o077 == 0


@pytest.fixture
def owned_by(monkeypatch) -> Callable[..., None]:
    """Return a function that lets files look as if they were somebody's."""
    fstat = os.fstat

    def look(owner: int) -> None:
        def of_owner(descriptor: int) -> os.stat_result:
            found = list(fstat(descriptor))
            found[stat.ST_UID] = owner
            return os.stat_result(found)

        monkeypatch.setattr(os, "fstat", of_owner)

    return look


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o600, 0o640])
def test_a_file_of_root_may_be_readable_by_its_group_but_is_not_written(
    tmp_path, owned_by, mode
) -> None:
    path = tmp_path / "keys.json"
    edit_key_file(path, lambda keys: (*keys, key()))
    path.chmod(mode)
    content = path.read_bytes()
    owned_by(0)
    found = read_key_file(path)
    assert found is not None
    assert len(found[0]) == 1
    if mode & 0o040:
        with pytest.raises(SettingsError, match=rf"open to its group \(mode 0{mode:o}\)"):
            edit_key_file(path, lambda keys: ())
        assert path.read_bytes() == content


@pytest.mark.parametrize("mode", [0o660, 0o650, 0o644, 0o444, 0o641, 0o602])
def test_a_file_of_root_that_is_open_further_is_refused(tmp_path, owned_by, mode) -> None:
    path = tmp_path / "keys.json"
    edit_key_file(path, lambda keys: (*keys, key()))
    path.chmod(mode)
    owned_by(0)
    with pytest.raises(SettingsError, match=r"chmod 600 .*, or 640 .*defaultMode: 0440"):
        read_key_file(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o610])
def test_file_that_others_can_open_is_refused_with_the_cure(tmp_path, owned_by, mode) -> None:
    path = tmp_path / "keys.json"
    edit_key_file(path, lambda keys: (*keys, key()))
    path.chmod(mode)
    owned_by(1000)
    for use in (read_key_file, lambda path: edit_key_file(path, lambda keys: keys)):
        with pytest.raises(SettingsError, match=f"chmod 600 {path}"):
            use(path)
    path.chmod(0o400)
    assert read_key_file(path) is not None


def test_what_is_no_file_is_refused(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name in ("pipe", "."):
        with pytest.raises(SettingsError, match="is no regular file"):
            read_key_file(tmp_path / name)


def test_a_failed_edit_leaves_the_file_and_nothing_else(tmp_path, monkeypatch) -> None:
    path = tmp_path / "keys.json"
    edit_key_file(path, lambda keys: (*keys, key()))
    before, names = path.read_bytes(), set(tmp_path.iterdir())

    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SettingsError, match="cannot be written: No space left on device"):
        edit_key_file(path, lambda keys: (*keys, key()))
    assert path.read_bytes() == before
    assert set(tmp_path.iterdir()) == names


def test_a_folder_that_cannot_be_made_is_told(tmp_path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot be written"):
        edit_key_file(tmp_path / "file" / "keys.json", lambda keys: keys)


def test_a_link_is_followed_not_replaced(tmp_path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "keys.json"
    link.symlink_to(real)
    edit_key_file(link, lambda keys: (*keys, key()))
    assert link.is_symlink()
    assert read_key_file(real) is not None


def test_root_leaves_the_file_to_its_owner(tmp_path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    path = tmp_path / "keys.json"
    edit_key_file(path, lambda keys: (*keys, key()))
    os.chown(path, 12345, 54321)
    edit_key_file(path, lambda keys: (*keys, key()))
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)
    found = read_key_file(path)
    assert found is not None
    assert len(found[0]) == 2


WRITER = """
import sys
from pathlib import Path
from caesar_server.web.access.key_file import edit_key_file
from caesar_server.web.access.keys import Key, hash_key

for number in range(20):
    name = f"{sys.argv[2]}-{number}"
    key = Key(id=name, sha256=hash_key(name), account="a")
    edit_key_file(Path(sys.argv[1]), lambda keys: (*keys, key))
"""


def test_two_writers_lose_nothing_and_readers_see_whole_files(tmp_path) -> None:
    path = tmp_path / "keys.json"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, name]) for name in ("one", "two")
    ]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        found = read_key_file(path)
        if found is not None:
            assert len(found[0]) >= seen
            seen = len(found[0])
    assert [writer.wait(60) for writer in writers] == [0, 0]
    found = read_key_file(path)
    assert found is not None
    assert len(found[0]) == 40


def test_threads_of_one_process_wait_for_each_other_too(tmp_path) -> None:
    path = tmp_path / "keys.json"
    threads = [
        threading.Thread(target=edit_key_file, args=(path, lambda keys: (*keys, key())))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = read_key_file(path)
    assert found is not None
    assert len(found[0]) == 8
