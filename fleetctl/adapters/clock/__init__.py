"""Every step, adapters layer: the machine's own clock. Never a lease's time: that is the store's."""
