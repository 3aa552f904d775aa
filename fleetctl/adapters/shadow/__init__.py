"""Migrate, adapters layer: compares answers of both sides to copies of real requests. Never in a client's path, keeps no text."""
