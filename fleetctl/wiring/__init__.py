"""Composition root: the only package that knows both ports and adapters. Never decides; imports an adapter when it is asked for."""

from fleetctl.wiring.base import STATE, shipped
from fleetctl.wiring.capacity import Capacity
from fleetctl.wiring.compare import Compare
from fleetctl.wiring.runbook import Runbooks

__all__ = ["STATE", "Wiring", "shipped"]


class Wiring(Compare, Capacity, Runbooks):
    """Adapters of one workspace, made when asked for and kept."""
