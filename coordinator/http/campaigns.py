"""Campaigns over HTTP. For the administrator."""

from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from edgeperf.agent.messages import ModelRef
from edgeperf.coordinator.campaign import Planner, parse_campaign
from edgeperf.coordinator.campaign.file import field_error
from edgeperf.coordinator.http.parts import Parts, admin, read_body, reply
from edgeperf.coordinator.store import campaigns, devices
from edgeperf.coordinator.store.campaigns import UnknownCampaignError
from edgeperf.coordinator.views import campaign_view, when


class _Submit(msgspec.Struct, forbid_unknown_fields=True):
    source: str
    where: str = "campaign"
    models: dict[str, ModelRef] = msgspec.field(default_factory=dict)


async def submit(request: Request) -> Response:
    """Check a campaign file, resolve its boards and begin."""
    asked = await read_body(request, _Submit)
    return reply(await run_in_threadpool(_submit, admin(request), asked), 201)


def _submit(parts: Parts, asked: _Submit) -> dict[str, Any]:
    campaign = parse_campaign(asked.source, where=asked.where)
    planner = Planner(campaign, source=asked.source, where=asked.where)
    with parts.store.writing() as connection:
        boards = planner.boards(lambda target: devices.find(connection, target))
        cells = planner.cells(boards, asked.models)
        try:
            campaigns.add(connection, campaign.name, asked.source, cells, now_ns=parts.clock_ns())
        except UnknownCampaignError as error:
            problem = str(error).removeprefix("name: ")
            raise field_error("name", problem, source=asked.source, where=asked.where) from error
        view = campaign_view(connection, campaigns.get(connection, campaign.name))
    parts.wake()
    return view


def list_campaigns(request: Request) -> Response:
    """Return every campaign, without cells."""
    with admin(request).store.reading() as connection:
        rows = campaigns.every(connection)
    return reply([{"name": r.name, "state": r.state, "created": when(r.created_ns)} for r in rows])


def show(request: Request) -> Response:
    """Return one campaign, with every cell unless the query says ``cells=false``."""
    cells = request.query_params.get("cells") != "false"
    with admin(request).store.reading() as connection:
        row = campaigns.get(connection, request.path_params["campaign"])
        return reply(campaign_view(connection, row, cells=cells))


def cancel(request: Request) -> Response:
    """Stop a campaign."""
    parts = admin(request)
    name = request.path_params["campaign"]
    with parts.store.writing() as connection:
        left = parts.scheduler.cancel(connection, name)
    parts.wake()
    return reply({"campaign": name, "cancelled": left}, 202)
