"""The URLs of the native research API."""

from __future__ import annotations

from flask import Blueprint
from flask.blueprints import BlueprintSetupState
from werkzeug.routing import BaseConverter

from caesar_server.blueprints.research import events, jobs, sources, updates
from caesar_server.blueprints.research.agents import routes as agents
from caesar_server.blueprints.research.brainstorm import routes as brainstorm
from caesar_server.blueprints.research.chat import routes as chat
from caesar_server.blueprints.research.found import VIEWS
from caesar_server.blueprints.research.rendering.views import Views
from caesar_server.web.framework.converters import IdConverter


def create_blueprint() -> Blueprint:
    """Return the surface."""
    blueprint = Blueprint("research", __name__)
    blueprint.record(_prepare)
    blueprint.post("/research")(jobs.create_research)
    blueprint.get("/research")(jobs.list_research)
    blueprint.post("/research/brainstorm")(brainstorm.create_brainstorm)
    one = "/research/<job:job_id>"
    blueprint.get(one)(jobs.retrieve_research)
    blueprint.delete(one)(jobs.delete_research)
    blueprint.post(f"{one}/cancel")(jobs.cancel_research)
    blueprint.get(f"{one}/events")(events.list_research_events)
    # The ids of results are the backends' own, and may be URLs: a slash behind what follows them is
    # only taken where the rule has one, and may be left out then.
    blueprint.get(f"{one}/results/<result:result_id>/content/")(sources.retrieve_result_content)
    blueprint.get(f"{one}/http_requests")(sources.list_http_requests)
    blueprint.get(f"{one}/updates")(updates.list_research_updates)
    blueprint.post(f"{one}/updates")(updates.create_research_update)
    chat.add_routes(blueprint)
    agents.add_routes(blueprint)
    return blueprint


class _JobIdConverter(IdConverter):
    """Any word but those that are paths of their own, whose methods are theirs alone."""

    # said again, for Werkzeug takes it back where a regex has a slash: then none may end the path
    part_isolating = True
    regex = "(?!(?:brainstorm|collections|files)$)[^/]+"


class _ResultIdConverter(BaseConverter):
    """Whatever a backend calls a result, which may be a URL or a path."""

    part_isolating = False
    regex = ".+?"


def _prepare(state: BlueprintSetupState) -> None:
    state.app.url_map.converters.setdefault("job", _JobIdConverter)
    state.app.url_map.converters.setdefault("result", _ResultIdConverter)
    state.app.extensions[VIEWS] = Views()
