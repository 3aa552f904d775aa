-- A store as schema 1 wrote it. Never regenerated: what an older release wrote must stay readable.
BEGIN TRANSACTION;
CREATE TABLE event (
  chain TEXT NOT NULL,                  -- a cell, or empty for the fleet's own
  seq INTEGER NOT NULL CHECK (seq >= 1),
  prev TEXT NOT NULL,
  hash TEXT NOT NULL,
  body TEXT NOT NULL,
  PRIMARY KEY (chain, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO "event" VALUES('',1,'0000000000000000000000000000000000000000000000000000000000000000','c1ba7c864339d9f5e9a64a56f292d09c835dff0c0d3c053dec819a90b585a049','{"_":"Event","actor":{"_":"Actor","kind":"person","name":"ann","via":"cli"},"at":"2026-11-30T12:00:00.000000Z","cell":null,"data":{"chat-lab":"2:36641a0b0027ba57122b9ac7e6082e64241db7a00504fb2339441a287548ee4b"},"hash":"c1ba7c864339d9f5e9a64a56f292d09c835dff0c0d3c053dec819a90b585a049","kind":"audit.anchor","prev":"0000000000000000000000000000000000000000000000000000000000000000","seq":1,"text":"1 chain head(s) anchored"}');
INSERT INTO "event" VALUES('chat-lab',1,'0000000000000000000000000000000000000000000000000000000000000000','2389d30d63679cb0c48a46893113281b78201c985a4e5b9d77d9d4889d704006','{"_":"Event","actor":{"_":"Actor","kind":"person","name":"ann","via":"cli"},"at":"2026-11-30T12:00:00.000000Z","cell":"chat-lab","data":{"n":1},"hash":"2389d30d63679cb0c48a46893113281b78201c985a4e5b9d77d9d4889d704006","kind":"rollout.step","prev":"0000000000000000000000000000000000000000000000000000000000000000","seq":1,"text":"started"}');
INSERT INTO "event" VALUES('chat-lab',2,'2389d30d63679cb0c48a46893113281b78201c985a4e5b9d77d9d4889d704006','36641a0b0027ba57122b9ac7e6082e64241db7a00504fb2339441a287548ee4b','{"_":"Event","actor":{"_":"Actor","kind":"person","name":"ann","via":"cli"},"at":"2026-11-30T12:00:00.000000Z","cell":"chat-lab","data":{"n":1},"hash":"36641a0b0027ba57122b9ac7e6082e64241db7a00504fb2339441a287548ee4b","kind":"rollout.step","prev":"2389d30d63679cb0c48a46893113281b78201c985a4e5b9d77d9d4889d704006","seq":2,"text":"canary at 10 %"}');
CREATE TABLE head (                     -- the last link of each chain, and how far the fleet's chain vouches for it
  chain TEXT PRIMARY KEY,
  seq INTEGER NOT NULL,
  hash TEXT NOT NULL,
  anchored_seq INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
INSERT INTO "head" VALUES('',1,'c1ba7c864339d9f5e9a64a56f292d09c835dff0c0d3c053dec819a90b585a049',0);
INSERT INTO "head" VALUES('chat-lab',2,'36641a0b0027ba57122b9ac7e6082e64241db7a00504fb2339441a287548ee4b',2);
CREATE TABLE lease (
  scope TEXT PRIMARY KEY,
  holder TEXT NOT NULL,                 -- empty: free
  token INTEGER NOT NULL CHECK (token >= 0),
  until_ms INTEGER NOT NULL             -- epoch ms of this file's clock; 0: free
) STRICT;
INSERT INTO "lease" VALUES('chat-lab','',1,0);
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
INSERT INTO "look" VALUES(1,'chat-lab',1,1796040005000000,'canary',1000,990,'[["errors","INCONCLUSIVE",0.5,100.0,4.0,20.0,120,""]]','look at 5 s','{"_":"LookRow","arms":{"baseline":{"_":"Counts","attempts":900,"cached_tokens":0,"clusters":{"_":"ClusterSums","clusters":0,"errors":0,"sum_sq":0},"errors":3,"ladders":{},"mean_latency_ms":0.0,"mismatches":0,"misses":0,"prompt_tokens":0,"quantiles_ms":[],"timed":0},"canary":{"_":"Counts","attempts":100,"cached_tokens":0,"clusters":{"_":"ClusterSums","clusters":0,"errors":0,"sum_sq":0},"errors":1,"ladders":{"latency@1.2500":[5,3,2,1,0]},"mean_latency_ms":0.0,"mismatches":0,"misses":0,"prompt_tokens":0,"quantiles_ms":[],"timed":0}},"at":"2026-11-30T12:00:05.000000Z","cell":"chat-lab","phase":"canary","served_bp":990,"target_bp":1000,"verdicts":[{"_":"Verdict","detail":"","e_value":0.5,"fail_bound":100.0,"guardrail":"errors","interval":null,"kind":"INCONCLUSIVE","look":{"_":"Look","at":"2026-11-30T12:00:05.000000Z","baseline_events":3,"baseline_n":900,"canary_events":1,"canary_n":100,"share":0.1},"missing":120,"pass_bound":20.0,"pass_e_value":4.0}],"why":"look at 5 s"}');
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
INSERT INTO "rollout" VALUES(1,'chat-lab',1,'p1',1,'canary',1,3,1000,1000,'soak','forward',0,0,'','',1796036792801,1796036792752,1796036792801,1,'{"_":"Rollout","approvals":[],"attempt":1,"cell":"chat-lab","deadline":null,"direction":"forward","ended":"","format_version":1,"hold_reason":"","judge":{"_":"JudgeState","format_version":1,"numbers":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},"latched":null,"lost_since":null,"orders":[],"paused":false,"plan":"p1","settled_at":null,"since":null,"spec":{"_":"RolloutSpec","cap_bp":10000,"lane":{"_":"Lane","actor":null,"kind":"own","reason":""},"lost_evidence_home":120.0,"min_canary_requests":100,"phases":[{"_":"PhaseSpec","bake":0.0,"guardrails":[],"phase":"preflight","weight_bp":0},{"_":"PhaseSpec","bake":20.0,"guardrails":[{"_":"GuardrailSpec","fail_margin":0.0,"judged":true,"margin":0.02,"name":"errors"}],"phase":"canary","weight_bp":1000},{"_":"PhaseSpec","bake":0.0,"guardrails":[],"phase":"complete","weight_bp":10000}],"shadow":null,"source":"nvidia-lab","step_deadline":3600.0,"target":"mi300x-lab","warm_up":3.0,"weight_lease":180.0},"step":1,"step_done":false,"until":"soak","weight_bp":1000}');
CREATE TABLE value (                    -- records by kind and id
  rank INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (kind, key)
) STRICT;
INSERT INTO "value" VALUES(1,'approval','a1','{"_":"Approval","actor":{"_":"Actor","kind":"person","name":"ann","via":"cli"},"at":"2026-11-30T12:00:00.000000Z","note":"yes","plan":"p1","plan_digest":"0000000000000000000000000000000000000000000000000000000000000000"}');
CREATE TABLE wish (                     -- orders of people and timers
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  cell TEXT NOT NULL,
  body TEXT NOT NULL,
  added_ms INTEGER NOT NULL,
  closed_ms INTEGER,                    -- obeyed, or overtaken by a new rollout
  closed_why TEXT NOT NULL DEFAULT ''
) STRICT;
INSERT INTO "wish" VALUES(1,'chat-lab','{"_":"Order","actor":{"_":"Actor","kind":"person","name":"ann","via":"cli"},"at":"2026-11-30T12:00:00.000000Z","kind":"pause","note":"look at this","until":null}',1796036792819,NULL,'');
CREATE TRIGGER lease_token_never_falls BEFORE UPDATE ON lease WHEN NEW.token < OLD.token
BEGIN SELECT RAISE(ABORT, 'a lease token never falls'); END;
CREATE TRIGGER lease_is_never_deleted BEFORE DELETE ON lease
BEGIN SELECT RAISE(ABORT, 'a lease is never deleted'); END;
CREATE UNIQUE INDEX rollout_current ON rollout (cell) WHERE is_current = 1;
CREATE INDEX rollout_due ON rollout (look_at_ms) WHERE is_current = 1;
CREATE INDEX rollout_cell ON rollout (cell, id);
CREATE INDEX wish_open ON wish (cell, id) WHERE closed_ms IS NULL;
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
CREATE INDEX look_cell ON look (cell, at_us, id);
CREATE INDEX look_newest ON look (rollout, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('rollout',1);
INSERT INTO "sqlite_sequence" VALUES('wish',1);
INSERT INTO "sqlite_sequence" VALUES('look',1);
INSERT INTO "sqlite_sequence" VALUES('value',1);
COMMIT;
PRAGMA user_version = 1;
