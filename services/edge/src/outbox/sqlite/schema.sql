-- Times are nanoseconds since 1970. Keys are 20 bytes.
--
-- An accept writes one row each of event, content and observation, and one entry in a random place: the key's. All else
-- goes to the end of its table, so that what is written together shares pages.
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
  -- The sum of the bits of its targets.
  targets      INTEGER NOT NULL,
  observations INTEGER NOT NULL DEFAULT 0,
  -- 0 once the bytes have been forgotten before the rest.
  body_kept    INTEGER NOT NULL DEFAULT 1,
  -- When the last target became final or dead; NULL while one is open.
  final_at     INTEGER
);
CREATE INDEX event_open ON event (sequence) WHERE final_at IS NULL;
CREATE INDEX event_final ON event (final_at) WHERE final_at IS NOT NULL;
CREATE INDEX event_body ON event (final_at) WHERE final_at IS NOT NULL AND body_kept = 1;

-- What is large, apart from what changes.
CREATE TABLE content (
  sequence INTEGER PRIMARY KEY,
  report   TEXT,
  body     BLOB
);

-- How far an event has come with a target, once that differs from how it began.
CREATE TABLE delivery (
  sequence        INTEGER NOT NULL,
  target          TEXT NOT NULL,
  state           TEXT NOT NULL,
  attempts        INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  next_at         INTEGER,
  first_failed_at INTEGER,
  code            TEXT NOT NULL,
  error           TEXT NOT NULL,
  detail          TEXT,
  PRIMARY KEY (sequence, target)
) WITHOUT ROWID;
CREATE INDEX delivery_dead ON delivery (sequence) WHERE state = 'dead';

CREATE TABLE target (
  bit    INTEGER PRIMARY KEY,
  name   TEXT NOT NULL,
  begins TEXT NOT NULL
);
INSERT INTO target (bit, name, begins) VALUES
  (1, 'broker', 'stored'), (2, 'tracking', 'stored'), (4, 'dora', 'waiting'), (8, 'span', 'waiting');

-- Every event with every target of it.
CREATE VIEW status AS
  SELECT e.sequence, t.name AS target, coalesce(d.state, t.begins) AS state, coalesce(d.attempts, 0) AS attempts,
         coalesce(d.updated_at, e.received_at) AS updated_at, d.next_at, d.first_failed_at,
         coalesce(d.code, '') AS code, coalesce(d.error, '') AS error, d.detail
  FROM event e JOIN target t ON e.targets & t.bit
  LEFT JOIN delivery d ON d.sequence = e.sequence AND d.target = t.name;

CREATE TABLE observation (
  number      INTEGER PRIMARY KEY,
  sequence    INTEGER NOT NULL,
  phase       TEXT NOT NULL,
  finished_at INTEGER NOT NULL,
  received_at INTEGER NOT NULL,
  tracked     INTEGER NOT NULL DEFAULT 0,
  settled     INTEGER NOT NULL DEFAULT 0,
  UNIQUE (sequence, finished_at)
);
CREATE INDEX observation_unsettled ON observation (number) WHERE settled = 0;

CREATE TABLE counter (
  name  TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
