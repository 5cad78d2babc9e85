//! The one writer of a file: many changes, one commit, one sync, then all answers.

use std::{
    thread,
    time::{Duration, Instant},
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{Database, StoreError, checkpoint::Checkpoints, presence::Presence};

/// Most changes in one commit.
const BATCH: usize = 1024;
/// Changes that may wait for the writer; beyond that, callers wait to hand theirs over.
const QUEUE: usize = 4096;
/// Pause between attempts to open a file that failed.
const REOPEN: Duration = Duration::from_millis(500);
/// How often a store that failed is tried with something of its own, so that it recovers without a caller.
const PROBE: Duration = Duration::from_secs(2);
/// Bytes that such a try writes: a disk with room for less is still full.
const PROBE_BYTES: i64 = 256 * 1024;

/// How the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Grows each time the file was opened anew after a failure: whoever keeps a picture of it in memory reads again.
    pub generation: u64,
    /// What keeps it from writing, if anything.
    pub problem: Option<StoreError>,
}

/// A handle to the writer. Clones share it; the last one to be dropped ends it.
#[derive(Clone)]
pub struct Writer {
    queue: mpsc::Sender<Box<dyn Change>>,
    health: watch::Receiver<Health>,
}

/// A change on its way through the writer.
trait Change: Send {
    fn apply(&mut self, connection: &Connection) -> rusqlite::Result<()>;
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
    /// Whether nothing is to be written after it.
    fn is_last(&self) -> bool {
        false
    }
}

/// The end: answered when the file holds everything by itself.
struct Close(oneshot::Sender<Result<(), StoreError>>);

impl Change for Close {
    fn apply(&mut self, _connection: &Connection) -> rusqlite::Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let _ = self.0.send(outcome);
    }

    fn is_last(&self) -> bool {
        true
    }
}

struct Pending<F, T> {
    apply: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> Change for Pending<F, T>
where
    F: FnMut(&Connection) -> rusqlite::Result<T> + Send,
    T: Send,
{
    fn apply(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.result = Some((self.apply)(connection)?);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        let answer = outcome.and_then(|()| result.ok_or(StoreError::Closed));
        // Whoever asked may have gone; the change is on disk all the same.
        let _ = reply.send(answer);
    }
}

impl Writer {
    /// Starts the writer of a file on a thread of its own.
    ///
    /// # Errors
    /// When the file cannot be opened or the thread not started.
    pub fn start(database: Database) -> Result<Self, StoreError> {
        let connection = database.connect_writer()?;
        let (queue, changes) = mpsc::channel(QUEUE);
        let (report, health) = watch::channel(Health { generation: 0, problem: None });
        let name = database.path().file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        let checkpoints = Checkpoints::start(&database, &name)?;
        let presence = Presence::of(&database);
        let work = Work { database, connection, changes, report, checkpoints, presence };
        thread::Builder::new()
            .name(format!("write-{name}"))
            .spawn(move || work.run())
            .map_err(|e| StoreError::Unavailable { action: "start its writer", problem: e.to_string() })?;
        Ok(Self { queue, health })
    }

    /// Applies a change and answers when it is on disk. `apply` runs inside a transaction that it shares with others;
    /// an error of its own is a value that it returns, a [`rusqlite::Error`] fails the whole batch.
    ///
    /// # Errors
    /// When nothing was acknowledged. The change may have reached the disk nevertheless.
    pub async fn write<T, F>(&self, apply: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let change = Box::new(Pending { apply, result: None, reply });
        self.queue.send(change).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Writes what is under way and copies the log into the file, which then holds everything. Later writes fail.
    ///
    /// # Errors
    /// When the store cannot write; what was acknowledged is in the file and its log.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(Box::new(Close(reply))).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// How the store is, and how it changes.
    #[must_use]
    pub fn health(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }
}

struct Work {
    database: Database,
    connection: Connection,
    changes: mpsc::Receiver<Box<dyn Change>>,
    report: watch::Sender<Health>,
    checkpoints: Checkpoints,
    presence: Presence,
}

impl Work {
    fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut closing = Vec::new();
        while closing.is_empty() && self.receive(&mut batch) {
            closing.extend(batch.extract_if(.., |change| change.is_last()));
            match self.commit(&mut batch) {
                Ok(()) => {
                    let changes = batch.len();
                    // Before the answers: who has one, and looks, finds the store well.
                    self.report_problem(None);
                    for change in batch.drain(..) {
                        change.finish(Ok(()));
                    }
                    self.checkpoints.after_commit(&self.connection, changes);
                }
                Err(error) => self.fail(&mut batch, &error),
            }
        }
        drop(self.checkpoints);
        // Leaves one file behind, and no log to recover.
        let copied = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let copied = copied.map_err(|error| StoreError::unavailable("copy its log", &error));
        closing.into_iter().for_each(|change| change.finish(copied.clone()));
    }

    /// Waits for changes; while the store has a problem, tries it meanwhile. False when nobody can send any more.
    fn receive(&mut self, batch: &mut Vec<Box<dyn Change>>) -> bool {
        let mut probed = Instant::now();
        while self.report.borrow().problem.is_some() {
            match self.changes.try_recv() {
                Ok(change) => {
                    batch.push(change);
                    while batch.len() < BATCH
                        && let Ok(change) = self.changes.try_recv()
                    {
                        batch.push(change);
                    }
                    return true;
                }
                Err(mpsc::error::TryRecvError::Disconnected) => return false,
                Err(mpsc::error::TryRecvError::Empty) => thread::sleep(Duration::from_millis(50)),
            }
            if probed.elapsed() >= PROBE {
                probed = Instant::now();
                match self.probe() {
                    Ok(()) => self.report_problem(None),
                    Err(error) => tracing::debug!(%error, "the store still cannot write"),
                }
            }
        }
        self.changes.blocking_recv_many(batch, BATCH) > 0
    }

    /// Writes and takes back a little.
    fn probe(&mut self) -> rusqlite::Result<()> {
        self.connection.execute_batch("CREATE TABLE IF NOT EXISTS probe (bytes BLOB)")?;
        self.connection.execute("INSERT INTO probe (bytes) VALUES (zeroblob(?1))", [PROBE_BYTES])?;
        self.connection.execute("DELETE FROM probe", [])?;
        Ok(())
    }

    fn commit(&mut self, batch: &mut [Box<dyn Change>]) -> Result<(), StoreError> {
        let apply = |batch: &mut [Box<dyn Change>], connection: &mut Connection| -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            for change in batch.iter_mut() {
                change.apply(&transaction)?;
            }
            transaction.commit()
        };
        apply(batch, &mut self.connection).map_err(|error| StoreError::unavailable("write", &error))?;
        self.presence.check()
    }

    /// Nobody of the batch is acknowledged. The file is opened anew before anything else is written: what the failed
    /// commit left behind is then known to SQLite, and to those who read again.
    fn fail(&mut self, batch: &mut Vec<Box<dyn Change>>, problem: &StoreError) {
        let (file, changes) = (self.database.path().display(), batch.len());
        // A disk that stays full is said once: each caller has the error, and readiness shows it.
        if self.report.borrow().problem.as_ref() == Some(problem) {
            tracing::debug!(%file, error = %problem, changes, "commit failed again");
        } else {
            tracing::error!(%file, error = %problem, changes, "commit failed");
        }
        self.report_problem(Some(problem.clone()));
        for change in batch.drain(..) {
            change.finish(Err(problem.clone()));
        }
        loop {
            // Not opened anew while it is lost: SQLite would make an empty file, or read a log that is not its own.
            let opened = self.presence.is_lost().map_or_else(|| self.database.connect_writer(), Err);
            match opened {
                Ok(connection) => {
                    self.connection = connection;
                    self.report.send_modify(|health| health.generation += 1);
                    return;
                }
                Err(error) => {
                    self.report_problem(Some(error.clone()));
                    // Whoever waits is answered, not kept.
                    while let Ok(change) = self.changes.try_recv() {
                        change.finish(Err(error.clone()));
                    }
                    thread::sleep(REOPEN);
                }
            }
        }
    }

    fn report_problem(&self, problem: Option<StoreError>) {
        self.report.send_if_modified(|health| {
            let changed = health.problem != problem;
            health.problem = problem;
            changed
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Schema;

    const SCHEMA: Schema = Schema { migrations: &["CREATE TABLE a (x INTEGER PRIMARY KEY)"] };

    fn insert(connection: &Connection, x: i64) -> rusqlite::Result<usize> {
        connection.execute("INSERT INTO a (x) VALUES (?1)", [x])
    }

    #[tokio::test]
    async fn what_is_answered_is_on_disk_and_a_failed_batch_acknowledges_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), "a.db", SCHEMA).unwrap();
        let writer = Writer::start(database.clone()).unwrap();
        writer.write(|c| insert(c, 1)).await.unwrap();
        let count =
            |c: &Connection| c.query_row("SELECT count(*) FROM a", [], |r| r.get::<_, i64>(0)).unwrap();
        let reader = database.connect_reader().unwrap();
        assert_eq!(count(&reader), 1);

        assert!(writer.write(|c| insert(c, 1)).await.is_err());
        let mut health = writer.health();
        health.wait_for(|h| h.generation == 1).await.unwrap();
        writer.write(|c| insert(c, 2)).await.unwrap();
        assert_eq!(count(&reader), 2);
        assert_eq!(writer.health().borrow().problem, None);
    }

    #[tokio::test]
    async fn what_is_written_to_a_file_that_was_removed_or_replaced_is_not_acknowledged() {
        for name in ["a.db", "a.db-wal"] {
            let directory = tempfile::tempdir().unwrap();
            let database = Database::open(directory.path(), "a.db", SCHEMA).unwrap();
            let writer = Writer::start(database.clone()).unwrap();
            writer.write(|c| insert(c, 1)).await.unwrap();
            let (file, away) = (directory.path().join(name), directory.path().join("away"));
            std::fs::rename(&file, &away).unwrap();
            let error = writer.write(|c| insert(c, 2)).await.unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("removed or replaced"), "{error}");
            std::fs::copy(&away, &file).unwrap();
            let error = writer.write(|c| insert(c, 3)).await.unwrap_err().to_string();
            assert!(error.contains("another file lies there"), "{error}");
            // Put back, it goes on by itself, and nothing that was acknowledged is missing.
            std::fs::rename(&away, &file).unwrap();
            let mut health = writer.health();
            health.wait_for(|h| h.generation == 1).await.unwrap();
            writer.write(|c| insert(c, 4)).await.unwrap();
            let count = "SELECT count(*) FROM a WHERE x IN (1, 4)";
            let kept: i64 = database.connect_reader().unwrap().query_row(count, [], |r| r.get(0)).unwrap();
            assert_eq!(kept, 2, "{name}");
        }
    }

    #[tokio::test]
    async fn many_changes_share_a_commit_and_each_gets_its_own_answer() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), "a.db", SCHEMA).unwrap();
        let writer = Writer::start(database).unwrap();
        let tasks: Vec<_> = (0..500)
            .map(|x| {
                let writer = writer.clone();
                tokio::spawn(async move { writer.write(move |c| insert(c, x).map(|_| x)).await })
            })
            .collect();
        for (x, task) in (0..).zip(tasks) {
            assert_eq!(task.await.unwrap(), Ok(x));
        }
    }

    #[tokio::test]
    async fn a_file_that_was_closed_holds_everything_by_itself() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(directory.path(), "a.db", SCHEMA).unwrap();
        let writer = Writer::start(database).unwrap();
        let (other, late) = (writer.clone(), writer.clone());
        let written = tokio::spawn(async move { other.write(|c| insert(c, 1)).await });
        written.await.unwrap().unwrap();
        writer.close().await.unwrap();
        assert_eq!(late.write(|c| insert(c, 2)).await, Err(StoreError::Closed));
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(directory.path().join("a.db"), copy.path().join("a.db")).unwrap();
        let copied = Database::open(copy.path(), "a.db", SCHEMA).unwrap().connect_reader().unwrap();
        let count: i64 = copied.query_row("SELECT count(*) FROM a", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 1);
    }

    #[tokio::test]
    async fn the_log_begins_anew_while_writes_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let schema = Schema { migrations: &["CREATE TABLE a (x BLOB)"] };
        let database = Database::open(directory.path(), "a.db", schema).unwrap();
        let writer = Writer::start(database).unwrap();
        let log = directory.path().join("a.db-wal");
        let (mut written, deadline) = (0, Instant::now() + Duration::from_secs(60));
        while written < 3 * std::fs::metadata(&log).unwrap().len() || written < 64 * 1024 * 1024 {
            assert!(Instant::now() < deadline, "{written} bytes written");
            writer.write(|c| c.execute("INSERT INTO a (x) VALUES (zeroblob(65536))", [])).await.unwrap();
            written += 65536;
        }
        drop(writer);
    }
}
