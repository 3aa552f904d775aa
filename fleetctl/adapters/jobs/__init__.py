"""Every step, adapters layer: long work by name. Never safety: that is the ticks' work."""
