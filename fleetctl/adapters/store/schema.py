"""Every step, adapters layer: the store's numbered, forward-only migrations. Never edited once released: add one at the end."""

from __future__ import annotations

_FIRST = """
CREATE TABLE lease (
  scope TEXT PRIMARY KEY,
  holder TEXT NOT NULL,                 -- empty: free
  token INTEGER NOT NULL CHECK (token >= 0),
  until_ms INTEGER NOT NULL             -- epoch ms of this file's clock; 0: free
) STRICT;
CREATE TRIGGER lease_token_never_falls BEFORE UPDATE ON lease WHEN NEW.token < OLD.token
BEGIN SELECT RAISE(ABORT, 'a lease token never falls'); END;
CREATE TRIGGER lease_is_never_deleted BEFORE DELETE ON lease
BEGIN SELECT RAISE(ABORT, 'a lease is never deleted'); END;

CREATE TABLE rollout (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cell TEXT NOT NULL,
  is_current INTEGER NOT NULL CHECK (is_current IN (0, 1)),
  plan TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  phase TEXT NOT NULL,
  step INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  weight_bp INTEGER NOT NULL,
  want_bp INTEGER NOT NULL,
  pass_through TEXT NOT NULL,
  direction TEXT NOT NULL,
  paused INTEGER NOT NULL CHECK (paused IN (0, 1)),
  step_done INTEGER NOT NULL CHECK (step_done IN (0, 1)),
  ended TEXT NOT NULL,
  hold_reason TEXT NOT NULL,
  look_at_ms INTEGER NOT NULL,
  started_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  format_version INTEGER NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX rollout_current ON rollout (cell) WHERE is_current = 1;
CREATE INDEX rollout_due ON rollout (look_at_ms) WHERE is_current = 1;
CREATE INDEX rollout_cell ON rollout (cell, id);

CREATE TABLE wish (                     -- orders of people and timers
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cell TEXT NOT NULL,
  body TEXT NOT NULL,
  added_ms INTEGER NOT NULL,
  closed_ms INTEGER,                    -- obeyed, or overtaken by a new rollout
  closed_why TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX wish_open ON wish (cell, id) WHERE closed_ms IS NULL;

CREATE TABLE event (
  chain TEXT NOT NULL,                  -- a cell, or empty for the fleet's own
  seq INTEGER NOT NULL CHECK (seq >= 1),
  prev TEXT NOT NULL,
  hash TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (chain, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE head (                     -- the last link of each chain, and how far the fleet's chain vouches for it
  chain TEXT PRIMARY KEY,
  seq INTEGER NOT NULL,
  hash TEXT NOT NULL,
  anchored_seq INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TRIGGER event_is_never_changed BEFORE UPDATE ON event
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER event_is_never_deleted BEFORE DELETE ON event
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER event_goes_to_the_end BEFORE INSERT ON event
WHEN NEW.seq <> 1 + coalesce((SELECT seq FROM head WHERE chain = NEW.chain), 0)
  OR NEW.prev <> coalesce((SELECT hash FROM head WHERE chain = NEW.chain), NEW.prev)
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END;
CREATE TRIGGER event_moves_its_head AFTER INSERT ON event
BEGIN
  INSERT INTO head (chain, seq, hash) VALUES (NEW.chain, NEW.seq, NEW.hash)
  ON CONFLICT (chain) DO UPDATE SET seq = excluded.seq, hash = excluded.hash;
END;

CREATE TABLE value (                    -- records by kind and id
  rank INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (kind, key)
) STRICT;

CREATE TABLE look (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cell TEXT NOT NULL,
  rollout INTEGER,                      -- the one that was current
  at_us INTEGER NOT NULL,
  phase TEXT NOT NULL,
  target_bp INTEGER NOT NULL,
  served_bp INTEGER,
  verdicts TEXT NOT NULL,               -- short form for a status line
  why TEXT NOT NULL,
  body TEXT NOT NULL
) STRICT;
CREATE INDEX look_cell ON look (cell, at_us, id);
CREATE INDEX look_newest ON look (rollout, id);
"""

_PACKED_LOOKS = """
CREATE TABLE look_pack (                -- older looks of a cell, each as it was, many in one
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cell TEXT NOT NULL,
  first_us INTEGER NOT NULL,
  last_us INTEGER NOT NULL,
  looks INTEGER NOT NULL,
  body BLOB NOT NULL                    -- zlib of a JSON list of [at_us, id, body]
) STRICT;
CREATE INDEX look_pack_cell ON look_pack (cell, last_us, id);
"""

MIGRATIONS: tuple[str, ...] = (_FIRST, _PACKED_LOOKS)
"""Number n (from 1) takes a file of version n - 1 to n; the version is SQLite's user_version."""
