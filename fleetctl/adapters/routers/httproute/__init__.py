"""Traffic, adapter layer: an HTTPRoute of the Gateway API as the router. Never decides a weight."""
