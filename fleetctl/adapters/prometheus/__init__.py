"""Inventory, adapter layer: traffic, latency and GPU use out of Prometheus' HTTP API. Reads only; its queries are constants."""
