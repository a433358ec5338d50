"""The backend: opened with its servers, asked, closed.

requests and urllib3 are imported when it is opened: listing what is installed stays quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from caesar_backend_upstream.keys import Scrubber, read_key, secrets_of
from caesar_backend_upstream.options import ServerOptions, UpstreamOptions, check_servers
from caesar_server.contract import (
    Backend,
    BackendError,
    Capabilities,
    Context,
    Event,
    Health,
    InvalidRequestError,
    Model,
    Request,
)

if TYPE_CHECKING:
    from caesar_backend_upstream.attempts import Attempts
    from caesar_backend_upstream.catalog import Catalog
    from caesar_backend_upstream.http.watchman import Watchman
    from caesar_backend_upstream.servers import Server


@dataclass(frozen=True, slots=True)
class _Open:
    """What lives while the backend is open."""

    servers: Sequence[Server]
    watchman: Watchman
    catalog: Catalog
    attempts: Attempts


class UpstreamBackend(Backend):
    """Passes requests on to OpenAI-compatible servers, or to the research API of Caesar.

    What a server cannot do it refuses itself: its error goes to the client.
    """

    capabilities = Capabilities(
        accepts=frozenset({"completion", "chat", "research"}),
        n=True,
        best_of=True,
        logprobs=True,
        echo=True,
        suffix=True,
        token_prompts=True,
        max_tokens=True,
        stop=True,
        seed=True,
        usage=True,
        images=True,
        audio=True,
        channels=frozenset({"content", "reasoning"}),
    )
    options_schema = UpstreamOptions
    options: UpstreamOptions

    def __init__(self, options: UpstreamOptions | None = None) -> None:
        super().__init__(options)
        servers = self.options.servers.values()
        # Research jobs name their sources; "[1]" in the text of another server means nothing.
        citations = any(server.endpoint == "native" for server in servers)
        media = not servers or any(server.passes_chats for server in servers)
        able = replace(type(self).capabilities, citations=citations, images=media, audio=media)
        self.capabilities = able  # type: ignore[misc]
        self._open: _Open | None = None

    def open(self) -> None:
        """Read the keys and make the connection pools; nothing is connected to yet.

        The lists of models are asked for in the background.

        :raises BackendError: if an option is wrong, or a key or a file is not there.
        """
        from caesar_backend_upstream.attempts import Attempts
        from caesar_backend_upstream.catalog import Catalog
        from caesar_backend_upstream.http.watchman import Watchman

        check_servers(self.options.servers)
        watchman = Watchman()
        servers = [
            self._server(name, options, watchman) for name, options in self.options.servers.items()
        ]
        catalog = Catalog(servers, self.options.models_ttl_s)
        watchman.start()
        self._open = _Open(servers, watchman, catalog, Attempts(servers, catalog, self.options))
        catalog.refresh()

    def _server(self, name: str, options: ServerOptions, watchman: Watchman) -> Server:
        from caesar_backend_upstream.http.line import Limits
        from caesar_backend_upstream.http.transport import Transport
        from caesar_backend_upstream.servers import Condition, Server

        if options.ca_file is not None and not options.ca_file.is_file():
            raise BackendError(f"servers.{name}.ca_file: there is no file {options.ca_file}")
        key = read_key(name, options)
        own = self.options
        return Server(
            name,
            options,
            transport=Transport(
                watchman=watchman,
                limits=Limits(
                    own.connect_timeout_s,
                    own.first_byte_timeout_s,
                    own.gap_timeout_s,
                    own.total_timeout_s,
                ),
                connections=own.connections,
                max_bytes=own.max_response_bytes,
                proxy=options.proxy,
                ca_file=None if options.ca_file is None else str(options.ca_file),
            ),
            condition=Condition(own.failures, own.cooldown_s),
            key=key,
            scrubber=Scrubber(secrets_of(options, key)),
        )

    def run(self, request: Request, context: Context) -> Iterator[Event]:
        """Yield the answer of the first server that begins one.

        ``Started`` names it in its details.  Nothing is asked again once an answer has begun.
        """
        if request.type not in self.capabilities.accepts:
            raise InvalidRequestError(f"upstream takes no {request.type} requests", param=None)
        if self._open is None:
            raise BackendError("the backend is not open")
        yield from self._open.attempts.events(request, context)

    def models(self) -> Sequence[Model]:
        """Return the servers' lists as last fetched, after the names that stand in the options."""
        named = {
            name: Model(name)
            for server in self.options.servers.values()
            for name in server.models
            if not set("*?[") & set(name)
        }
        if self._open is not None:
            named |= {model.id: model for model in self._open.catalog.models()}
        return tuple(named.values())

    def health(self) -> Health:
        """Return how the servers are, from how their last answers went; asks nobody."""
        if not self.options.servers:
            return Health("down", "no upstream server is configured")
        servers = () if self._open is None else self._open.servers
        cooling = [server.name for server in servers if server.condition.cooling]
        if not cooling:
            return Health()
        message = f"cooling down after failures: {', '.join(cooling)}"
        return Health("down" if len(cooling) == len(servers) else "degraded", message)

    def close(self) -> None:
        """End what is under way and close the connections."""
        opened, self._open = self._open, None
        if opened is None:
            return
        opened.watchman.close()
        opened.catalog.close()
        for server in opened.servers:
            server.transport.close()
