"""The local fleet: router, inference servers, emulated engines, load, faults. Never needed in production."""
