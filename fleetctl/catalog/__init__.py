"""Every step, catalogue layer: rows with source and date. Never a network call."""
