"""Every step, adapter layer: one folder per outside thing. Adapters never import each other."""
