"""Campaigns: many runs over many boards, from one TOML file. The door of the folder."""

from edgeperf.coordinator.campaign.file import Campaign, CampaignError, parse_campaign
from edgeperf.coordinator.campaign.plan import Planner
from edgeperf.coordinator.campaign.scheduler import Scheduler

__all__ = ["Campaign", "CampaignError", "Planner", "Scheduler", "parse_campaign"]
