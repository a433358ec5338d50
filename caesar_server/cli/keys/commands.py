"""The commands on keys: each reads or edits the file that the server reads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from caesar_server.cli.keys.moments import format_moment, parse_moment
from caesar_server.cli.startup import config_option, json_option, print_json, read_settings
from caesar_server.cli.tables import table
from caesar_server.errors import SettingsError
from caesar_server.registry import nearest
from caesar_server.settings import LoadedSettings
from caesar_server.web.access.key_file import Keys, edit_key_file
from caesar_server.web.access.keyring import configured_keys
from caesar_server.web.access.keys import (
    API_VERSIONS,
    DEFAULT_ACCOUNT,
    MAX_LABEL_LENGTH,
    NEWEST_VERSION,
    Key,
    KeyLimits,
    effective_limits,
    generate_id,
    generate_key,
    hash_key,
)

F = TypeVar("F", bound=Callable[..., Any])

_LIMITS = {
    "requests_per_minute": "POST requests in any 60 seconds.",
    "streams": "Streams open at once, in each worker.",
    "jobs_in_progress": "Jobs of the account that are not done.",
    "loops_per_month": "Reasoning loops of the account's completed jobs in a month.",
}

_keys_file_option = click.option(
    "--keys-file", metavar="FILE", help="File of keys.  [default: the setting keys_file]"
)


def _limit_options(command: F) -> F:
    for name, text in reversed(_LIMITS.items()):
        flag = f"--{name.replace('_', '-')}"
        kind = click.IntRange(1, 1_000_000_000)
        command = click.option(flag, name, type=kind, metavar="N", help=text)(command)
    return command


@click.group()
def keys() -> None:
    """Make, list and revoke API keys.

    A running server takes changes over within a second.
    """


@keys.command()
@click.option("--account", default=DEFAULT_ACCOUNT, show_default=True, help="Whose the key is.")
@click.option("--name", default="", help="What its owner calls it.")
@click.option(
    "--expires",
    metavar="WHEN",
    help="When it ends to be valid: 30d, 12h, 2026-12-31 or 2026-12-31T18:00.",
)
@click.option(
    "--version-pin",
    type=click.Choice(API_VERSIONS),
    default=NEWEST_VERSION,
    show_default=True,
    help="API version of requests that name none.",
)
@click.option(
    "--cli-shapes",
    is_flag=True,
    help="Show chats and brainstorms as the public Go client reads them.",
)
@_limit_options
@_keys_file_option
@config_option
@json_option
def create(
    account: str,
    name: str,
    expires: str | None,
    version_pin: Any,
    cli_shapes: bool,
    keys_file: str | None,
    config: Path | None,
    as_json: bool,
    **limits: int | None,
) -> None:
    """Make a key and print it, this once: only its hash is kept."""
    _check_label("--account", account, least=1)
    _check_label("--name", name, least=0)
    path = _path(_load(config, keys_file))
    secret, now = generate_key(), datetime.now(UTC).replace(microsecond=0)
    fields: dict[str, Any] = {
        "sha256": hash_key(secret),
        "account": account,
        "name": name,
        "api_version": version_pin,
        "limits": KeyLimits(**limits),
        "cli_shapes": cli_shapes,
        "created_at": now,
        "expires_at": None if expires is None else _expiry(expires, now),
    }

    def show(key: Key) -> None:
        if as_json:
            print_json({"key": secret, "file": str(path), **_as_json(key)})
            return
        # the key alone on stdout, for scripts
        click.echo(f"Key {key.id} of {account}, in {path}; it is shown only now:", err=True)
        click.echo(secret)

    def add(known: Keys) -> Keys:
        key = Key(id=generate_id(key.id for key in known), **fields)
        try:
            # Before it is kept: with a full disk, say, it would be valid and nobody would have it.
            show(key)
        except OSError as error:
            raise click.ClickException(
                f"the key cannot be written out, and is not made: {error.strerror}"
            ) from error
        return (*known, key)

    edit_key_file(path, add)


@keys.command("list")
@_keys_file_option
@config_option
@json_option
def list_keys(keys_file: str | None, config: Path | None, as_json: bool) -> None:
    """List the keys of the file and of the setting api_keys, without the keys themselves."""
    known = configured_keys(_load(config, keys_file).settings) or ()
    if as_json:
        print_json([_as_json(key) for key in known])
        return
    head = ("ID", "ACCOUNT", "NAME", "STATUS", "VERSION", "SHAPES", "CREATED", "EXPIRES")
    rows = [
        (
            key.id,
            key.account,
            key.name or "-",
            _status(key),
            key.api_version,
            "cli" if key.cli_shapes else "-",
            format_moment(key.created_at),
            format_moment(key.expires_at),
        )
        for key in known
    ]
    for line in table(head, rows):
        click.echo(line)


@keys.command()
@click.argument("key_id", metavar="ID")
@_keys_file_option
@config_option
def revoke(key_id: str, keys_file: str | None, config: Path | None) -> None:
    """Make the key ID invalid, for good."""
    loaded = _load(config, keys_file)
    now = datetime.now(UTC).replace(microsecond=0)

    def mark(known: Keys) -> Keys:
        key = _find(key_id, known, loaded)
        if key.revoked_at is not None:
            raise click.ClickException(f"{key_id} was revoked at {format_moment(key.revoked_at)}")
        revoked = msgspec.structs.replace(key, revoked_at=now)
        return tuple(revoked if one is key else one for one in known)

    edit_key_file(_path(loaded), mark)
    click.echo(f"{key_id} is not valid any more", err=True)


@keys.command("show-limits")
@click.argument("key_id", metavar="[ID]", required=False)
@_keys_file_option
@config_option
@json_option
def show_limits(
    key_id: str | None, keys_file: str | None, config: Path | None, as_json: bool
) -> None:
    """Show what each key, or the key ID, may do; - is no limit."""
    loaded = _load(config, keys_file)
    known = configured_keys(loaded.settings) or ()
    if key_id is not None:
        known = (_find(key_id, known, loaded),)
    limits = {key.id: effective_limits(key.limits, loaded.settings) for key in known}
    if as_json:
        print_json({name: msgspec.to_builtins(value) for name, value in limits.items()})
        return
    head = ("ID", "ACCOUNT", *(name.upper().replace("_", " ") for name in _LIMITS))
    rows = [
        (key.id, key.account, *(str(getattr(limits[key.id], name) or "-") for name in _LIMITS))
        for key in known
    ]
    for line in table(head, rows):
        click.echo(line)


def _load(config: Path | None, keys_file: str | None) -> LoadedSettings:
    return read_settings(config, {} if keys_file is None else {"keys_file": keys_file})


def _path(loaded: LoadedSettings) -> Path:
    if loaded.settings.keys_file is None:
        raise SettingsError(["keys_file: you have no home directory; name one with --keys-file"])
    return Path(loaded.settings.keys_file).absolute()


def _expiry(text: str, now: datetime) -> datetime:
    try:
        moment = parse_moment(text, now)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is no period such as 30d or 12h, and no date such as 2026-12-31",
            param_hint="--expires",
        ) from None
    if moment <= now:
        raise click.BadParameter(f"{format_moment(moment)} is over", param_hint="--expires")
    return moment


def _check_label(flag: str, text: str, *, least: int) -> None:
    if not text.isprintable() or not least <= len(text) <= MAX_LABEL_LENGTH:
        raise click.BadParameter(
            f"expected {least} to {MAX_LABEL_LENGTH} printable characters", param_hint=flag
        )


def _find(key_id: str, known: Keys, loaded: LoadedSettings) -> Key:
    """Return a key by its id.

    :raises click.ClickException: if there is none in ``known``.
    """
    for key in known:
        if key.id == key_id:
            return key
    if any(key.id == key_id for key in configured_keys(loaded.settings) or ()):
        raise click.ClickException(f"{key_id} is in the setting api_keys; take it out of there")
    raise click.ClickException(
        f"no key is called {key_id!r}; {nearest(key_id, [key.id for key in known])}"
    )


def _status(key: Key) -> str:
    return key.status(datetime.now(UTC).timestamp())


def _as_json(key: Key) -> dict[str, Any]:
    """Return what may be told of a key: all but its hash."""
    shown = msgspec.to_builtins(key)
    del shown["sha256"]
    return {**shown, "status": _status(key)}
