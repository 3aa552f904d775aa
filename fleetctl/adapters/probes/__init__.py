"""Assess, adapter layer: real compilers on one file at a time, each in a sandboxed child. Never in this process, never on a network."""

from fleetctl.adapters.probes.hip import HipProbe
from fleetctl.adapters.probes.triton import TritonProbe

__all__ = ["HipProbe", "TritonProbe"]
