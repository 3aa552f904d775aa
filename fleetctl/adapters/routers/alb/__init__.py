"""Traffic, adapter layer: an AWS Application Load Balancer as the router. Never decides a weight."""
