"""Every step, adapters layer: the state of record in one SQLite file. Never a decision, never traffic.

`status` and `database` import the standard library only, so that a status line starts fast; `sqlite` is the whole Store.
"""
