"""What an operator may set under ``[backends.upstream]``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from caesar_server.contract import BackendError, option

#: Fields of a request beyond those of the API that change nothing but the text: OpenAI's own, then
#: those of vLLM, llama.cpp and others.
USUAL_EXTRA_FIELDS = (
    *("response_format", "reasoning_effort", "verbosity", "parallel_tool_calls"),
    *("functions", "function_call"),
    *("top_k", "min_p", "typical_p", "repetition_penalty", "repeat_penalty", "min_tokens"),
    *("ignore_eos", "grammar", "json_schema", "structured_outputs", "chat_template_kwargs"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    *("mirostat", "mirostat_tau", "mirostat_eta"),
)

#: What is below a base URL; the longest first.
_PATHS = ("chat/completions", "completions")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """One upstream server, under ``[backends.upstream.servers.NAME]``."""

    url: str = option(
        help="Base URL, with chat/completions and completions below it; for kind caesar the host. "
        "A query is sent along with each request.",
        example="http://127.0.0.1:11434/v1",
    )
    kind: Literal["openai", "caesar"] = option(
        "openai", help="An OpenAI-compatible server, or the research API of Caesar."
    )
    endpoint: Literal["same", "chat", "completions", "native"] = option(
        "same",
        help="Ask as the client did, always by chat, always by completion, or by research jobs "
        "(kind caesar alone).",
    )
    models: tuple[str, ...] = option(
        (), help="Names or globs of the models that it answers for; empty: all.", example="llama*"
    )
    model: str | None = option(
        None,
        help="Model name that it is given; unset: the one that the client asked for, or else the "
        "first that it lists.",
        example="gpt-5.2",
    )
    weight: float = option(
        1.0,
        help="Share of the requests under order weighted; 0: only when all others fail.",
        minimum=0,
        maximum=1_000_000,
    )
    stream: bool = option(
        True, help="Ask for streams, which can be cancelled between tokens; off: for whole answers."
    )
    include_usage: bool = option(
        True, help="Ask for the token counts of streams with stream_options.include_usage."
    )
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = option(
        "max_tokens", help="Name of the limit in chats; newer models of OpenAI want the second."
    )
    api_key: str | None = option(None, help="Key that is sent as bearer token.", secret=True)
    api_key_env: str | None = option(
        None, help="Environment variable that holds the key.", example="OPENAI_API_KEY"
    )
    api_key_file: Path | None = option(
        None, help="File that holds the key.", example="/run/secrets/openai"
    )
    forward_key: bool = option(
        False,
        help="Send the caller's own key, where the server's setting forward_headers has "
        "authorization; callers without one get the key above, if there is one.",
    )
    headers: Mapping[str, str] = option(
        default_factory=dict, help="Further headers to send.", secret=True
    )
    forward_headers: tuple[str, ...] = option(
        (),
        help="Headers of the caller to send on, of those in the server's setting forward_headers.",
        example="x-tenant",
    )
    return_headers: tuple[str, ...] = option(
        (),
        help="Headers of the answer to hand to the client, of those that begin with x- or openai-.",
        example="openai-processing-ms, x-ratelimit-remaining-requests",
    )
    extra_fields: tuple[str, ...] = option(
        USUAL_EXTRA_FIELDS,
        help="Fields of the request beyond the API's own that are passed on; * passes all.",
    )
    proxy: str | None = option(
        None,
        help="HTTP proxy to reach it through; the environment's proxies are not used.",
        secret=True,
        example="http://proxy.internal:3128",
    )
    ca_file: Path | None = option(
        None,
        help="PEM file of the authorities to trust; unset: the usual ones.",
        example="/etc/ssl/internal-ca.pem",
    )
    fetch_sources: bool = option(
        False, help="Endpoint native: also fetch the text of each result, two requests a result."
    )
    poll_interval_s: float = option(
        1.0,
        help="Endpoint native: how often to ask how a job gets on.",
        unit="s",
        minimum=0.01,
        maximum=60,
    )

    @property
    def passes_chats(self) -> bool:
        """Whether chats stay chats; a transcript and a research job have no place for images."""
        return self.endpoint in ("same", "chat")


@dataclass(frozen=True, kw_only=True)
class UpstreamOptions:
    """The options of the backend ``upstream``."""

    servers: Mapping[str, ServerOptions] = option(
        default_factory=dict, help="The upstream servers, each under a name of its own."
    )
    order: Literal["listed", "weighted"] = option(
        "listed", help="Which server is asked first: the first that is well, or one by weight."
    )
    connect_timeout_s: float = option(
        5.0,
        help="How long looking up, connecting and TLS may take.",
        unit="s",
        minimum=0.05,
        maximum=300,
    )
    first_byte_timeout_s: float = option(
        120.0,
        help="How long a server may take to begin its answer.",
        unit="s",
        minimum=0.05,
        maximum=86400,
    )
    gap_timeout_s: float = option(
        60.0,
        help="How long a server may be silent within an answer.",
        unit="s",
        minimum=0.05,
        maximum=86400,
    )
    total_timeout_s: float = option(
        600.0, help="How long an answer may take.", unit="s", minimum=0.05, maximum=86400
    )
    retries: int = option(
        2,
        help="Further rounds through the servers when all failed before the first byte.",
        minimum=0,
        maximum=10,
    )
    retry_budget: float = option(
        0.1,
        help="Retries for each request on average, so that a broken server is not asked thrice as "
        "often; ten are always in hand.",
        minimum=0,
        maximum=10,
    )
    max_retry_after_s: float = option(
        1.0,  # shorter than a stream's status is waited for: the client then still gets a 429
        help="Longest Retry-After that is waited for; a longer one goes to the client.",
        unit="s",
        minimum=0,
        maximum=600,
    )
    failures: int = option(
        3, help="Failures in a row after which a server cools down.", minimum=1, maximum=1000
    )
    cooldown_s: float = option(
        10.0,
        help="How long a server is asked last after that.",
        unit="s",
        minimum=0,
        maximum=3600,
    )
    hedge_after_s: float | None = option(
        None,
        help="Silence after which the next server is asked too and the first to begin answers; "
        "unset: never. It costs tokens twice.",
        unit="s",
        minimum=0.01,
        maximum=600,
    )
    max_response_bytes: int = option(
        64 * 1024 * 1024,
        help="Largest answer, unpacked.",
        unit="bytes",
        minimum=1024,
        maximum=1024**3,
    )
    max_line_bytes: int = option(
        4 * 1024 * 1024,
        help="Longest event of a stream.",
        unit="bytes",
        minimum=1024,
        maximum=1024**3,
    )
    connections: int = option(
        64, help="Connections to each server that are kept open.", minimum=1, maximum=4096
    )
    models_ttl_s: float = option(
        300.0,
        help="How long the list of a server's models is taken as it is; 0: it is never fetched.",
        unit="s",
        minimum=0,
        maximum=86400,
    )
    record_folder: Path | None = option(
        None,
        help="Folder to record each request and its frames in, with the callers' texts.",
        example="recordings",
    )


def check_servers(servers: Mapping[str, ServerOptions]) -> None:
    """Check what no single option can tell.

    :raises BackendError: naming the option and the cure.
    """
    problems = [
        f"servers.{name}.{problem}"
        for name, server in servers.items()
        for problem in _problems(name, server)
    ]
    if problems:
        raise BackendError("; ".join(problems), code="wrong_options")


def _problems(name: str, server: ServerOptions) -> Iterator[str]:
    if not name.isascii() or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        yield f"{name}: a name is letters, digits, dots, dashes and underscores"
    if (problem := _url_problem(server.url)) is not None:
        yield f"url: {problem}"
    if server.endpoint == "native" and server.kind != "caesar":
        yield 'endpoint: native takes kind = "caesar"'
    if server.endpoint == "completions" and server.kind == "caesar":
        yield "endpoint: Caesar answers completions and chats alike; leave it at same"
    if server.proxy is not None and _url_problem(server.proxy, credentials=True) is not None:
        yield "proxy: expected http://HOST:PORT"
    keys = [key for key in (server.api_key, server.api_key_env, server.api_key_file) if key]
    if len(keys) > 1:
        yield "api_key: given twice; use one of api_key, api_key_env and api_key_file"


def _url_problem(url: str, *, credentials: bool = False) -> str | None:
    """Return what is wrong with a base URL, without quoting it, since it may hold a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "expected http:// or https:// and a host"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "expected http:// or https:// and a host"
    if parts.username is not None and not credentials:
        return "credentials do not belong into it; use api_key or headers"
    if parts.query and credentials:
        return "expected no query"
    if parts.fragment:
        return "expected no fragment"
    if any(char.isspace() for char in url):
        return "expected no spaces"
    for path in () if credentials else _PATHS:
        if parts.path.rstrip("/").endswith(f"/{path}"):
            return f"leave {path} off its end; it is put there"
    return None
