"""Bench of traffic: time to zero, whole streams, caps, buckets, batch, tee and locality on real routers before emulated engines."""
