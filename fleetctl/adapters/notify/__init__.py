"""Every step, adapters layer: notices to people. Never raises, never decides."""
