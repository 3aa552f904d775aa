"""Traffic, adapter layer: HAProxy as the router, its start-up files, its process and a prober through it. Never decides a weight."""
