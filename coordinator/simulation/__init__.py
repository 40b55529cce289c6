"""Simulated boards, to try a broker and a coordinator under load. The door of the folder."""

from edgeperf.coordinator.simulation.fleet import Load, Report, SimulatedFleet

__all__ = ["Load", "Report", "SimulatedFleet"]
