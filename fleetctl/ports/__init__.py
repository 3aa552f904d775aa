"""Every step, ports layer: Protocols of three to seven methods; the docstring is the contract. Never an implementation."""
