"""Provision, tests: lab doubles of clouds. Nothing here is a cloud; every answer is emulated and says so where it can."""
