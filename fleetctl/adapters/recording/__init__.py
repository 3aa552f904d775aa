"""Evidence, adapter layer: recordings of attempts and scrapes on disk, written and read. Never judges."""
