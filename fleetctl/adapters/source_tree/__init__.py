"""Assess, adapter layer: reads source trees, archives, images, binaries and model headers. Never runs, extracts or follows what it reads.

Every size, depth and count is bounded; what is over a bound, or is not what it claims to be, is stated and passed by.
"""

from fleetctl.adapters.source_tree.reader import SourceTreeReader

__all__ = ["SourceTreeReader"]
