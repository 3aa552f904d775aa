"""Every step, shell layer: one module per command with a `command` object; imported only when that command is called. Never decides."""
