"""Assess: portability rules and memory fit; pure layer. Never I/O, clock, randomness or logging."""
