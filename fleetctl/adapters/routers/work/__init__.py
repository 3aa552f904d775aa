"""Traffic, adapter layer: work of a queue split between two sides of consumers. Never decides a weight, never runs a job."""
