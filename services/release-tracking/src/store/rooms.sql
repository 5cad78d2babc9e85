-- Whether a Task of the app made the record. Who made the older ones is not known: they count as the edge's.
ALTER TABLE record ADD COLUMN by_app INTEGER NOT NULL DEFAULT 0;

-- How many records take whose room: of an app namespace on a cluster; with an empty app namespace, of the cluster as a
-- whole; with an empty cluster, those that Tasks of the app made. What the tally counts by cluster and app namespace is no
-- longer read, and stays because a step only adds.
CREATE TABLE room (
    cluster       TEXT NOT NULL,
    app_namespace TEXT NOT NULL,
    count         INTEGER NOT NULL,
    PRIMARY KEY (cluster, app_namespace)
) WITHOUT ROWID;

INSERT INTO room SELECT cluster, app_namespace, count(*) FROM record GROUP BY cluster, app_namespace;
INSERT INTO room SELECT cluster, '', sum(count) FROM room GROUP BY cluster;

CREATE TRIGGER room_is_taken AFTER INSERT ON record WHEN new.by_app = 0 BEGIN
    INSERT INTO room VALUES (new.cluster, new.app_namespace, 1), (new.cluster, '', 1)
        ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TRIGGER room_of_app_is_taken AFTER INSERT ON record WHEN new.by_app = 1 BEGIN
    INSERT INTO room VALUES ('', new.app_namespace, 1) ON CONFLICT DO UPDATE SET count = count + 1;
END;

CREATE TRIGGER room_is_left AFTER DELETE ON record WHEN old.by_app = 0 BEGIN
    UPDATE room SET count = count - 1 WHERE cluster = old.cluster AND app_namespace IN (old.app_namespace, '');
    DELETE FROM room WHERE cluster = old.cluster AND app_namespace IN (old.app_namespace, '') AND count = 0;
END;

CREATE TRIGGER room_of_app_is_left AFTER DELETE ON record WHEN old.by_app = 1 BEGIN
    UPDATE room SET count = count - 1 WHERE cluster = '' AND app_namespace = old.app_namespace;
    DELETE FROM room WHERE cluster = '' AND app_namespace = old.app_namespace AND count = 0;
END;
