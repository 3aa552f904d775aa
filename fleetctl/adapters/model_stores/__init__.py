"""Configure, adapters layer: signs addresses of model files, so that hosts need no credential. Never reads or writes a model."""
