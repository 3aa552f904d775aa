"""Traffic, adapter layer: Envoy as the router, its bootstrap and its runtime file. Never decides a weight."""
