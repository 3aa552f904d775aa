"""Every step, domain layer: frozen values. Never does I/O, reads a clock or draws a random number."""
