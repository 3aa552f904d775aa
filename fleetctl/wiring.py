"""Composition root: the only module that knows both ports and adapters. Never decides anything."""
