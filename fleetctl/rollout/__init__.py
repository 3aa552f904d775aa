"""Migrate: decide(rollout, observation, now); pure layer. Never I/O, clock, randomness or logging."""
