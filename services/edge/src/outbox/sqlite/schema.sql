-- Times are nanoseconds since 1970. Keys are 20 bytes.
CREATE TABLE event (
  sequence     INTEGER PRIMARY KEY AUTOINCREMENT,
  key          BLOB NOT NULL UNIQUE,
  cluster      TEXT NOT NULL,
  kind         TEXT NOT NULL,
  source       TEXT NOT NULL,
  id           TEXT NOT NULL,
  content_type TEXT NOT NULL,
  digest       BLOB NOT NULL,
  bytes        INTEGER NOT NULL,
  received_at  INTEGER NOT NULL,
  release      BLOB,
  stream       BLOB,
  phase        TEXT,
  report       TEXT,
  observations INTEGER NOT NULL DEFAULT 0,
  -- 0 once the bytes have been forgotten before the rest.
  body_kept    INTEGER NOT NULL DEFAULT 1,
  -- When the last target became final or dead; NULL while one is open.
  final_at     INTEGER
);
CREATE INDEX event_open ON event (sequence) WHERE final_at IS NULL;
CREATE INDEX event_final ON event (final_at) WHERE final_at IS NOT NULL;
CREATE INDEX event_body ON event (final_at) WHERE final_at IS NOT NULL AND body_kept = 1;

CREATE TABLE body (
  sequence INTEGER PRIMARY KEY,
  body     BLOB NOT NULL
);

CREATE TABLE delivery (
  sequence        INTEGER NOT NULL,
  target          TEXT NOT NULL,
  state           TEXT NOT NULL,
  attempts        INTEGER NOT NULL DEFAULT 0,
  updated_at      INTEGER NOT NULL,
  next_at         INTEGER,
  first_failed_at INTEGER,
  code            TEXT NOT NULL DEFAULT '',
  error           TEXT NOT NULL DEFAULT '',
  detail          TEXT,
  PRIMARY KEY (sequence, target)
) WITHOUT ROWID;
CREATE INDEX delivery_dead ON delivery (sequence) WHERE state = 'dead';

CREATE TABLE observation (
  number      INTEGER PRIMARY KEY,
  sequence    INTEGER NOT NULL,
  release     BLOB NOT NULL,
  phase       TEXT NOT NULL,
  finished_at INTEGER NOT NULL,
  received_at INTEGER NOT NULL,
  tracked     INTEGER NOT NULL DEFAULT 0,
  settled     INTEGER NOT NULL DEFAULT 0,
  UNIQUE (sequence, finished_at)
);
CREATE INDEX observation_unsettled ON observation (release) WHERE settled = 0;

CREATE TABLE counter (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
