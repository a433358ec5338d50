"""Sockets that listen."""

from __future__ import annotations

import socket


def listening(host: str, port: int, backlog: int) -> socket.socket:
    """Return a listening socket.

    :param host: an address, or a name; of a name that has both, its address of IPv4.  Empty is
        every address of IPv4, and ``::`` every one of both.
    :param port: 0 takes a free one.
    :raises OSError: if the address cannot be listened on.
    """
    found = socket.getaddrinfo(
        host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return socket.create_server(
        address,
        family=family,
        backlog=backlog,
        # Python's own default is IPv6 alone: a container's check asks 127.0.0.1
        dualstack_ipv6=address[0] == "::" and socket.has_dualstack_ipv6(),
    )


def url_of(listener: socket.socket) -> str:
    """Return the URL of a listening socket, or the path of a Unix socket."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"unix:{name}"
    host, port = name[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
