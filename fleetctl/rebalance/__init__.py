"""Rebalance: when moving is worth it; pure layer. Never I/O, clock, randomness or logging."""
