"""Assess: portability rules and memory fit; pure layer. Never I/O, clock, randomness or logging."""

from fleetctl.assess.declared import declared
from fleetctl.assess.memory import fits, memory_fit

__all__ = ["declared", "fits", "memory_fit"]
