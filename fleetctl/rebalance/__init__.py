"""Rebalance, pure layer: when moving again is worth it, and how much may move. Never I/O, never plans a move itself."""
