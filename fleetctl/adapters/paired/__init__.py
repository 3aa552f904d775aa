"""Evidence, adapter layer: the same prompt to both arms, streamed and timed at the client. Never in a user's path, never a verdict."""
