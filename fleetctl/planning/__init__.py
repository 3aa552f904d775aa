"""Plan: cost, placement, waves; pure layer. Never I/O, clock, randomness or logging."""
