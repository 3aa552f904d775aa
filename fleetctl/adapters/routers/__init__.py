"""Traffic, adapter layer: routers, and what all of them share: their log as evidence, and proof by a completion through them."""
