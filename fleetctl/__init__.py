"""fleetctl: move GPU inference fleets from NVIDIA to AMD, one workload at a time, and bring them back in seconds."""

__version__ = "0.1.0"
