"""Every step, adapters layer: secrets from variables and 0600 files, read at their use. Never logged, never kept."""
