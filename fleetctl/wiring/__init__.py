"""Composition root: the only package that knows both ports and adapters. Never decides; imports an adapter when it is asked for."""

from fleetctl.wiring.base import STATE, shipped
from fleetctl.wiring.capacity import Capacity
from fleetctl.wiring.see import See
from fleetctl.wiring.traffic import Traffic

__all__ = ["STATE", "Wiring", "shipped"]


class Wiring(Traffic, Capacity, See):
    """Adapters of one workspace, made when asked for and kept."""
