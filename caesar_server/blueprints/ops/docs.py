"""``/openapi.json`` and ``/docs``: the API's description for programs and for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from flask import (
    Blueprint,
    Response,
    current_app,
    jsonify,
    render_template,
    request,
    send_from_directory,
)

from caesar_server.blueprints.ops.openapi import ApiDescription
from caesar_server.blueprints.ops.page import page_sections
from caesar_server.blueprints.ops.prose import prose
from caesar_server.web.description import Surface

#: Nothing but this server's own stylesheet and script, no frame around it, no form.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_ASSETS = Path(__file__).with_name("static")


class DocsViews:
    """The views; they share one description.

    :param surfaces: what to describe.
    """

    def __init__(self, surfaces: Iterable[Surface | Callable[[], Surface]]) -> None:
        self._description = ApiDescription(surfaces)

    def add_to(self, blueprint: Blueprint) -> None:
        """Register the views."""
        blueprint.get("/openapi.json")(self.show_openapi)
        blueprint.get("/docs")(self.show_docs)
        blueprint.get("/docs/<name>")(self.show_docs_asset)

    def show_openapi(self) -> Response:
        """``GET /openapi.json``: an OpenAPI 3.1 document."""
        document = self._description.document(current_app)
        if request.path.endswith("/"):
            (server,) = document["servers"]
            document = {**document, "servers": [{**server, "url": "../"}]}
        return jsonify(document)

    def show_docs(self) -> Response:
        """``GET /docs``: the same as a page."""
        document = self._description.document(current_app)
        page = render_template(
            "docs.html",
            info=document["info"],
            sections=page_sections(document, request.root_url.rstrip("/")),
            prose=prose,
            # Relative to the page, or they would be lost behind a proxy that serves this under a
            # path of its own and takes that away.
            here="" if request.path.endswith("/") else "docs/",
            above="../" if request.path.endswith("/") else "",
        )
        return _guarded(Response(page, mimetype="text/html"))

    def show_docs_asset(self, name: str) -> Response:
        """``GET /docs/NAME``: a file that the page needs."""
        # They are small: whole answers alone, no 206, 304 or 416.
        return _guarded(send_from_directory(_ASSETS, name, conditional=False, etag=False))


def _guarded(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
