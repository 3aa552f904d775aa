"""Every step, view layer: value to table, text, JSON or HTML. Never I/O."""
