"""Every step, shell layer: options, parse, run, view. Never decides."""
