"""Coming home, adapters layer: what a return needs when no store answers, as local files. Never traffic, never the store."""
