"""``/agents``: what the rest of the native API does, told in fewer words."""

from __future__ import annotations

import re

from flask import Blueprint

from caesar_server.blueprints.research.agents import chat, research
from caesar_server.errors import NotFoundError
from caesar_server.web.access.auth import ABSENT_PATHS
from caesar_server.web.incoming import incoming

#: Where the hosted service sells what a server of one's own does not.
SOLD_ELSEWHERE = frozenset({*ABSENT_PATHS, "/agents/balance", "/agents/topup"})


def add_routes(blueprint: Blueprint) -> None:
    """Let a blueprint answer the URLs of the agents family, but for uploads."""
    blueprint.post("/agents/research")(research.create_agent_research)
    one = "/agents/research/<id:job_id>"
    blueprint.get(one)(research.retrieve_agent_research)
    blueprint.get(f"{one}/results")(research.list_agent_results)
    blueprint.get(f"{one}/results/<result:result_id>")(research.retrieve_agent_result)
    blueprint.post(f"{one}/updates")(research.create_agent_update)
    blueprint.post(f"{one}/chat")(chat.create_agent_chat)
    blueprint.get(f"{one}/chat/<id:message_id>")(chat.retrieve_agent_chat_message)
    blueprint.get(f"{one}/chat/<id:message_id>/stream")(chat.stream_agent_chat_message)
    blueprint.before_app_request(refuse_commerce)


def refuse_commerce() -> None:
    """Say that nothing is sold here, where the hosted service does; whatever the method.

    These are no routes: they would be listed and described as if there were something.
    """
    request = incoming()
    if request.url_rule is not None:
        return
    if re.sub("/+", "/", request.path).rstrip("/") in SOLD_ELSEWHERE:
        raise NotFoundError(
            "This server is self-hosted and sells nothing: it has no sign-up, no balance and no "
            "payments. Its operator makes API keys with: caesar-server keys create"
        )
