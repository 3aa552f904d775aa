"""Every step, use-case layer: load, decide, apply; one module per verb. Never imports an adapter."""
