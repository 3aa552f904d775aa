"""Evidence: counts to verdicts; pure layer. Never I/O, clock, randomness or logging."""
