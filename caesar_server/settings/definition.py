"""What can be set: the one definition that flags, environment, file, checks, manual come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from caesar_server.contract.options import option

_DAY_S = 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRoute:
    """Where requests for one model name, or for a glob of names, go."""

    backend: str = option(help="Name of the backend that answers.")
    model: str | None = option(
        None, help="Model name that the backend is given; unset: the one that the client asked for."
    )
    options: Mapping[str, Any] = option(
        default_factory=dict,
        help="Options for this route alone; they override those of the backend.",
        secret=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The server's settings.  Frozen: an app keeps those that it was made with."""

    host: str = option(
        "127.0.0.1", help="Address to listen on; outside loopback takes API keys, or insecure."
    )
    port: int = option(
        8000, help="TCP port to listen on; 0 takes a free one.", minimum=0, maximum=65535
    )
    workers: int = option(
        1,
        help="Worker processes; each has its own jobs in memory and its own backends.",
        minimum=1,
        maximum=1024,
    )
    worker_class: Literal["gthread", "gevent"] = option(
        "gthread",
        help="Threads, or greenlets: lighter, but only for backends that just wait for others.",
    )
    threads: int = option(
        64,
        help="Threads of a worker: four fewer is the number of requests it answers at once.",
        minimum=8,
        maximum=4096,
    )
    insecure: bool = option(
        False, help="Allow listening outside loopback without API keys, so that anybody may call."
    )
    keys_file: str | None = option(
        None,
        help="File with the API keys; unset: in the user's configuration folder, as keys.json.",
        example="/etc/caesar-server/keys.json",
    )
    api_keys: tuple[str, ...] = option(
        (),
        help="API keys besides those of the file, in clear or as sha256: and their hash.",
        secret=True,
    )
    max_streams: int | None = option(
        None,
        help="Streams a worker has open at once; unset: seven of eight requests that it answers.",
        minimum=1,
        maximum=4096,
    )
    key_streams: int | None = option(
        None,
        help="Streams in a worker for each API key that has no such limit of its own.",
        minimum=1,
        maximum=1_000_000,
    )
    key_requests_per_minute: int | None = option(
        None,
        help="POST requests a minute for each API key that has no such limit of its own.",
        minimum=1,
        maximum=1_000_000,
    )
    account_jobs_in_progress: int = option(
        5,
        help="Jobs an account with API keys may have in progress; 0: any number.",
        minimum=0,
        maximum=1_000_000,
    )
    account_loops_per_month: int = option(
        200,
        help="Reasoning loops an account with API keys may consume a month (UTC); 0: any number.",
        minimum=0,
        maximum=1_000_000_000,
    )
    api_version: str | None = option(
        None,
        help="API version spoken where neither request nor API key names one; unset: the newest.",
        example="2025-08-08",
    )
    limits_storage: str = option(
        "memory://",
        help="Where requests per minute are counted: memory://, or redis://HOST:PORT for all.",
        secret=True,
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        help="Further Host header names to answer to; on loopback others than its own are refused.",
        example="caesar.internal",
    )
    cors_origins: tuple[str, ...] = option(
        (),
        help="Origins whose web pages may call the server from a browser; * is every one.",
        example="https://app.example, http://localhost:3000",
    )
    default_backend: str | None = option(
        None, help="Backend for names that nothing else claims; unset: research, else mock."
    )
    allowed_backends: tuple[str, ...] = option(
        (), help="Backends that may be loaded, by name; empty allows all.", example="echo, mock"
    )
    strict_plugins: bool = option(
        False, help="Load every backend at start and refuse to start if one of them fails."
    )
    unknown_model: Literal["default", "reject"] = option(
        "default", help="Send unknown model names to the default backend, or answer 404."
    )
    models: Mapping[str, ModelRoute] = option(
        default_factory=dict, help="Routes from model names or globs to backends."
    )
    # secret: keys of services stand here; which ones is known only to each backend's schema
    backends: Mapping[str, Mapping[str, Any]] = option(
        default_factory=dict, help="Options of each backend, by its name.", secret=True
    )
    extra_backends: tuple[str, ...] = option(
        (),
        help="Backends to run in place, each [NAME=]module:Class or [NAME=]file.py[:Class].",
        example="hello=my_backend:HelloBackend",
    )
    max_body_bytes: int = option(
        10 * 1024 * 1024,
        help="Largest request body.",
        unit="bytes",
        minimum=1024,
        maximum=1024**3,
    )
    max_prompts: int = option(256, help="Most prompts in one request.", minimum=1, maximum=100_000)
    max_choices: int = option(
        512,
        help="Most choices in one request: prompts times n, or best_of.",
        minimum=1,
        maximum=100_000,
    )
    max_answer_chars: int = option(
        16 * 1024 * 1024,
        help="Longest answer, over all its choices; one that grows beyond it fails.",
        unit="characters",
        minimum=1,
        maximum=1024**4,
    )
    request_timeout_s: float = option(
        600.0, help="Longest run of a request.", unit="s", minimum=0.1, maximum=_DAY_S
    )
    research_timeout_s: float = option(
        3600.0,
        help="Longest run of a job of the native research API.",
        unit="s",
        minimum=0.1,
        maximum=30 * _DAY_S,
    )
    first_event_wait_s: float = option(
        2.0,
        help="How long a stream waits for a sign of the backend before it answers 200.",
        unit="s",
        minimum=0,
        maximum=600,
    )
    heartbeat_s: float = option(
        10.0,
        help="Silence after which a stream sends a comment; 0 sends none.",
        unit="s",
        minimum=0,
        maximum=3600,
    )
    graceful_timeout_s: float = option(
        30.0,
        help="How long requests and jobs may go on when the server is reloaded or told to stop.",
        unit="s",
        minimum=1,
        maximum=3600,
    )
    write_timeout_s: float = option(
        60.0,
        help="How long a client may take no byte of its answer, or send none of its request.",
        unit="s",
        minimum=0.1,
        maximum=3600,
    )
    max_requests: int = option(
        0,
        help="Requests until a worker is replaced, twice as many while jobs run; 0: never.",
        minimum=0,
        maximum=1_000_000_000,
    )
    feed_events: int = option(
        256,
        help="Events that a backend may be ahead of a slow reader of its stream.",
        minimum=1,
        maximum=1_000_000,
    )
    lease_s: float = option(
        30.0,
        help="How long a process may be silent until others take its jobs over.",
        unit="s",
        minimum=0.3,
        maximum=3600,
    )
    max_attempts: int = option(
        3,
        help="Lost processes that a job may cost until it fails.",
        minimum=1,
        maximum=1000,
    )
    orphan_timeout_s: float = option(
        259_200.0,
        help="How long no process may have a waiting job's backend until it fails; 0: for ever.",
        unit="s",
        minimum=0,
        maximum=365 * _DAY_S,
    )
    run_jobs: bool = option(
        True, help="Run the jobs of durable backends here; off leaves them to worker processes."
    )
    job_threads: int | None = option(
        None,
        help="Jobs of durable backends a process runs at once; unset: as many as answers.",
        minimum=1,
        maximum=4096,
    )
    queue_limit: int = option(
        1000,
        help="Jobs that may wait for a process to run them; beyond it a new one is refused.",
        minimum=0,
        maximum=10_000_000,
    )
    store: str | None = option(
        None,
        help="Where jobs are kept: memory, sqlite, or a URL; unset: sqlite, in the user's folder.",
        example="postgresql://caesar@db.internal/caesar",
    )
    store_synchronous: Literal["normal", "full"] = option(
        "normal",
        help="Whether SQLite waits for the disk at each commit; normal: power loss may undo some.",
    )
    stored_jobs: int | None = option(
        None,
        help="Finished jobs that are kept; unset: 1000 in memory, 100000 in a database.",
        minimum=0,
        maximum=1_000_000_000,
    )
    stored_days: float = option(
        30.0, help="Days for which finished jobs are kept.", minimum=0.001, maximum=36_500
    )
    stored_bytes: int = option(
        64 * 1024 * 1024,
        help="Memory of a worker for finished jobs, roughly; the oldest go first.",
        unit="bytes",
        minimum=0,
        maximum=1024**4,
    )
    files: str | None = option(
        None,
        help="Where uploads are kept: a directory or s3://BUCKET/PREFIX; unset: beside the store.",
        example="/var/lib/caesar-server/files",
    )
    s3_endpoint_url: str | None = option(
        None,
        help="Where the bucket of files is, if not at Amazon's.",
        example="https://minio.internal:9000",
    )
    max_file_bytes: int = option(
        512 * 1024 * 1024,
        help="Largest file that may be uploaded.",
        unit="bytes",
        minimum=1,
        maximum=64 * 1024**3,
    )
    account_files: int = option(
        10_000,
        help="Files that an account may have; 0 is no limit.",
        minimum=0,
        maximum=1_000_000_000,
    )
    account_file_bytes: int = option(
        10 * 1024**3,
        help="How large the files of an account may be together; 0 is no limit.",
        unit="bytes",
        minimum=0,
        maximum=1024**5,
    )
    account_collections: int = option(
        1000,
        help="Collections that an account may have; 0 is no limit.",
        minimum=0,
        maximum=1_000_000_000,
    )
    stream_progress: bool = option(
        True, help="Report progress in chunks without content while research is under way."
    )
    compat_usage: Literal["counted", "zero"] = option(
        "counted", help="Report counted tokens as usage, or zeros as the hosted service does."
    )
    unknown_fields: Literal["ignore", "reject"] = option(
        "ignore", help="Ignore unknown fields of a request, or answer 400."
    )
    cli_shapes: bool = option(
        False, help="Show chats and brainstorms as the public Go command line client reads them."
    )
    brainstorm_expiry_s: float = option(
        86_400.0,
        help="How long the questions of a brainstorm may be answered.",
        unit="s",
        minimum=1,
        maximum=365 * _DAY_S,
    )
    forward_headers: tuple[str, ...] = option(
        (),
        help="Caller's headers that backends may see; authorization: a key not of this server.",
        example="x-tenant, x-request-source",
    )
    log_level: Literal["debug", "info", "warning", "error"] = option(
        "info", help="Least severity of what is logged."
    )
    log_format: Literal["auto", "text", "json"] = option(
        "auto", help="Log as text or as JSON lines; auto: text on a terminal, else JSON."
    )
    metrics_public: bool = option(
        False, help="Answer /metrics without an API key where other paths ask for one."
    )
    mock_strict: bool = option(
        False, help="Of the mock: answer 404 to a request that no rule matches."
    )
    mock_fallback: Literal["echo", "error"] = option(
        "echo", help="Of the mock: repeat the prompt of such a request, or answer 404."
    )
    mock_seed: int = option(
        0,
        help="Of the mock: what ids, jitter and chance come from, the same for the same calls.",
        minimum=-(2**63),
        maximum=2**63 - 1,
    )
    mock_scopes: int = option(
        1000, help="Of the mock: most scopes at a time.", minimum=1, maximum=1_000_000
    )
    mock_journal_entries: int = option(
        1000,
        help="Of the mock: requests that the journal of each scope keeps.",
        minimum=1,
        maximum=10_000_000,
    )
    mock_journal_bytes: int = option(
        32 * 1024 * 1024,
        help="Of the mock: memory of each scope's journal, roughly; the oldest go first.",
        unit="bytes",
        minimum=1024,
        maximum=1024**4,
    )
