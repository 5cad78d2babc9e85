CREATE TABLE record (
    key           BLOB NOT NULL PRIMARY KEY,
    stream        BLOB NOT NULL,
    app_namespace TEXT NOT NULL,
    app           TEXT NOT NULL,
    env           TEXT NOT NULL,
    cluster       TEXT NOT NULL,
    chain_id      TEXT NOT NULL,
    git_revision  TEXT NOT NULL,
    event_id      TEXT NOT NULL,
    pr_url        TEXT NOT NULL,
    state         TEXT NOT NULL,
    -- Nanoseconds since 1970, as all times here.
    updated_at    INTEGER NOT NULL,
    -- When the release was last merged or observed.
    sign_at       INTEGER,
    -- Since when an outcome is awaited.
    quiet_since   INTEGER,
    -- The record itself, as JSON; the columns above are there to find it.
    document      TEXT NOT NULL
);

CREATE INDEX record_chain_id ON record (chain_id, app_namespace) WHERE chain_id <> '';
CREATE INDEX record_git_revision ON record (git_revision, app_namespace) WHERE git_revision <> '';
CREATE INDEX record_event_id ON record (event_id, app_namespace) WHERE event_id <> '';
CREATE INDEX record_pr_url ON record (pr_url, app_namespace) WHERE pr_url <> '';
CREATE INDEX record_awaiting ON record (stream, sign_at) WHERE state IN ('merged', 'progressing', 'unreported');
CREATE INDEX record_quiet ON record (quiet_since) WHERE quiet_since IS NOT NULL;
CREATE INDEX record_state ON record (state, updated_at, key);
CREATE INDEX record_app_namespace ON record (app_namespace, state, updated_at, key);

-- How many records there are, by owner and by state: counted as they come and go, never by a scan.
CREATE TABLE tally (
    owner TEXT NOT NULL,
    name  TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (owner, name)
) WITHOUT ROWID;

CREATE TRIGGER record_comes AFTER INSERT ON record BEGIN
    INSERT INTO tally VALUES ('store', '', 1), ('cluster', new.cluster, 1),
        ('app namespace', new.app_namespace, 1), ('state', new.state, 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TRIGGER record_goes AFTER DELETE ON record BEGIN
    UPDATE tally SET count = count - 1 WHERE owner = 'store';
    UPDATE tally SET count = count - 1 WHERE owner = 'cluster' AND name = old.cluster;
    UPDATE tally SET count = count - 1 WHERE owner = 'app namespace' AND name = old.app_namespace;
    UPDATE tally SET count = count - 1 WHERE owner = 'state' AND name = old.state;
    DELETE FROM tally WHERE owner = 'cluster' AND name = old.cluster AND count = 0;
    DELETE FROM tally WHERE owner = 'app namespace' AND name = old.app_namespace AND count = 0;
END;

CREATE TRIGGER record_moves AFTER UPDATE OF state ON record WHEN old.state <> new.state BEGIN
    UPDATE tally SET count = count - 1 WHERE owner = 'state' AND name = old.state;
    INSERT INTO tally VALUES ('state', new.state, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TABLE report (
    cluster TEXT NOT NULL PRIMARY KEY,
    at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE probe (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    at  INTEGER NOT NULL
) WITHOUT ROWID;
