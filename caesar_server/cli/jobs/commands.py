"""The commands on stored jobs."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import cast, get_args

import click

from caesar_server.cli.jobs.opened import located, opened_store
from caesar_server.cli.jobs.shown import (
    job_lines,
    job_object,
    job_table,
    record_lines,
    record_object,
    state_of,
)
from caesar_server.cli.startup import (
    config_option,
    json_option,
    print_json,
    read_settings,
    store_option,
)
from caesar_server.contract.events import Status
from caesar_server.jobs.ending import cancel_job
from caesar_server.jobs.files import Files
from caesar_server.jobs.leasing.lease import new_owner
from caesar_server.settings import LoadedSettings
from caesar_server.store.base import Job, Store, UnknownJobError
from caesar_server.store.blobs.opening import open_blobs
from caesar_server.store.opening import kept_jobs
from caesar_server.web.framework.ids import plain_id

_STATUSES = get_args(Status)
_ENDED = ("completed", "failed")
_DAY_S = 24 * 60 * 60
#: So many records are read, and so many jobs are removed, in one step.
_AT_ONCE = 1000
_JOB_ID = click.types.FuncParamType(plain_id)


def _finite(context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"expected a number of days, got {value}")
    return value


@click.group(short_help="List, show, cancel or remove jobs.")
def jobs() -> None:
    """Look at the jobs in the server's database, cancel them, or remove old ones.

    The server and its workers may go on meanwhile.
    """


@jobs.command("list", short_help="List jobs, the newest first.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(_STATUSES),
    help="Only jobs in this status.  May be given several times.",
)
@click.option("--open", "only_open", is_flag=True, help="Only jobs that have not ended.")
@click.option("--backend", metavar="NAME", help="Only jobs of this backend.")
@click.option("--account", metavar="NAME", help="Only jobs of this account.")
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="So many jobs."
)
@click.option(
    "--before", type=_JOB_ID, metavar="ID", help="Only jobs older than this one: the next page."
)
@store_option
@config_option
@json_option
def list_jobs(
    statuses: tuple[str, ...],
    only_open: bool,
    backend: str | None,
    account: str | None,
    limit: int,
    before: str | None,
    store: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """List jobs, the newest first."""
    wanted: Sequence[str] = statuses
    if only_open:
        wanted = [name for name in statuses or _STATUSES if name not in _ENDED]
        if not wanted:
            raise click.UsageError("--open and --status completed or failed: no job is both")
    with opened_store(_settings(config, store)) as opened:
        last = None if before is None else _job(opened, before)
        found = opened.jobs(
            account=account,
            statuses=cast("Sequence[Status]", wanted) or None,
            backend=backend,
            before=None if last is None else (last.created_at, last.id),
            limit=limit,
        )
        stuck = _stuck(opened, found)
    if as_json:
        print_json([job_object(job, stuck) for job in found])
        return
    for line in job_table(found, stuck):
        click.echo(line)
    if len(found) == limit:
        click.echo(f"(more: --before {found[-1].id})", err=True)


@jobs.command(short_help="Print a job and its events.")
@click.argument("job_id", type=_JOB_ID, metavar="ID")
@click.option("--events", is_flag=True, help="Also print the stored events.")
@store_option
@config_option
@json_option
def show(job_id: str, events: bool, store: str | None, config: Path | None, as_json: bool) -> None:
    """Print what is stored of a job, with its request."""
    with opened_store(_settings(config, store)) as opened:
        job = _job(opened, job_id)
        stuck = _stuck(opened, [job])
        if as_json:
            told = job_object(job, stuck)
            if events:
                told["records"] = [record_object(record) for record in opened.records(job.id)]
            print_json(told)
            return
        for line in job_lines(job, stuck):
            click.echo(line)
        if events:
            click.echo()
            _print_records(opened, job)


@jobs.command(short_help="Cancel jobs.")
@click.argument("job_ids", type=_JOB_ID, metavar="ID...", nargs=-1, required=True)
@store_option
@config_option
def cancel(job_ids: tuple[str, ...], store: str | None, config: Path | None) -> None:
    """Cancel jobs, in whatever process they run.

    A job that waits is ended at once; whoever runs one notices within a second.  One that has ended
    stays as it is.
    """
    owner = new_owner()
    unknown = 0
    with opened_store(_settings(config, store)) as opened:
        for job_id in job_ids:
            try:
                before = opened.job(job_id)
                job = cancel_job(opened, job_id, owner, time.time())
            except UnknownJobError:
                click.echo(f"{job_id}: there is no such job", err=True)
                unknown += 1
                continue
            click.echo(f"{job_id}: {_what_became(before, job)}")
    if unknown:
        raise click.exceptions.Exit(1)


@jobs.command(short_help="Remove old jobs, and what crashes left of uploads.")
@click.option(
    "--older-than",
    "days",
    type=click.FloatRange(min=0),
    callback=_finite,
    metavar="DAYS",
    help="Jobs that ended so long ago.  [default: the setting stored_days]",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    metavar="N",
    help="Jobs beyond the newest so many that have ended, but for those of the last minute.  "
    "[default: the setting stored_jobs]",
)
@store_option
@config_option
def prune(days: float | None, keep: int | None, store: str | None, config: Path | None) -> None:
    """Remove jobs that have ended, as the server does by itself once a minute.

    Jobs that run or wait are never removed, nor is one that is followed up by a job that stays.
    --keep leaves those of the last minute, whose clients may still ask for them; --older-than 0
    does not.  What killed processes left behind of uploads goes too,
    once it is an hour old; with --store only where the files are beside that database.
    """
    loaded = _settings(config, store)
    settings = loaded.settings
    ended_before = time.time() - (settings.stored_days if days is None else days) * _DAY_S
    if keep is None:
        keep = kept_jobs(settings)
    removed = 0
    with opened_store(loaded) as opened:
        while True:
            step = opened.prune(finished_before=ended_before, keep=keep, limit=_AT_ONCE)
            removed += step
            if step < _AT_ONCE:
                break
        click.echo(f"{removed} removed")
        # files that were named for another database look as if nothing referred to them
        if store is None or settings.files is None:
            _sweep(loaded, opened)


def _sweep(loaded: LoadedSettings, store: Store) -> None:
    with located(loaded):
        blobs = open_blobs(loaded.settings)
    with closing(blobs):
        swept = Files(store, blobs).sweep()
    if swept.total:
        click.echo(f"{swept.total} removed that uploads and runs had left behind")


def _settings(config: Path | None, store: str | None) -> LoadedSettings:
    return read_settings(config, {} if store is None else {"store": store})


def _job(store: Store, job_id: str) -> Job:
    try:
        return store.job(job_id)
    except UnknownJobError:
        raise click.ClickException(f"{job_id}: there is no such job") from None


def _stuck(store: Store, found: Sequence[Job]) -> Collection[str]:
    """Return the ids of jobs whose backend no living process has; none if all of these ended."""
    if all(job.finished_at is not None for job in found):
        return ()
    return {one.id for one in store.unclaimable()}


def _print_records(store: Store, job: Job) -> None:
    seq = 0
    while records := store.records(job.id, seq, limit=_AT_ONCE):
        seq = records[-1].seq
        for line in record_lines(records):
            click.echo(line)


def _what_became(before: Job, after: Job) -> str:
    if before.finished_at is not None:
        return f"has ended already: {state_of(before)}"
    if after.finished_at is not None:
        return "cancelled"
    return f"asked {after.owner or 'whoever begins with it'} to stop"
