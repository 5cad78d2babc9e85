//! One SQLite file: opened, migrated, ready for a writer and readers.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use crate::StoreError;

/// The tables of a file. Entry `n` of `migrations` takes the file from schema number `n` to `n + 1`.
#[derive(Debug, Clone, Copy)]
pub struct Schema {
    /// SQL of each step. Steps are only ever added, and add only what an older version ignores.
    pub migrations: &'static [&'static str],
}

/// Where a file lies and how it is opened. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Database {
    path: PathBuf,
    schema: Schema,
}

impl Database {
    /// Opens the file `name` in a data directory, makes or migrates it.
    ///
    /// # Errors
    /// When it cannot be opened, or was written by a newer version.
    pub fn open(directory: &Path, name: &str, schema: Schema) -> Result<Self, StoreError> {
        let database = Self { path: directory.join(name), schema };
        database.migrate()?;
        Ok(database)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self.connect_writer()?;
        let failed = |e: rusqlite::Error| self.failed("migrate its schema", &e);
        let found: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
        let known = u32::try_from(self.schema.migrations.len()).unwrap_or(u32::MAX);
        if found > known {
            return Err(StoreError::Newer { file: self.path.display().to_string(), found, known });
        }
        for (number, sql) in (1u32..).zip(self.schema.migrations).skip(found as usize) {
            let transaction = connection.transaction().map_err(failed)?;
            transaction.execute_batch(sql).map_err(failed)?;
            transaction.pragma_update(None, "user_version", number).map_err(failed)?;
            transaction.commit().map_err(failed)?;
        }
        Ok(())
    }

    /// A connection that writes: every commit is synced before it returns.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn connect_writer(&self) -> Result<Connection, StoreError> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open(&self.path)?;
            connection.busy_timeout(std::time::Duration::from_secs(5))?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            // NORMAL would lose acknowledged commits at power loss.
            connection.pragma_update(None, "synchronous", "FULL")?;
            // Checkpoints run beside the writer, not within a commit that someone waits for.
            connection.pragma_update(None, "wal_autocheckpoint", 0)?;
            // A log that has grown larger is cut when it begins anew.
            connection.pragma_update(None, "journal_size_limit", 128 * 1024 * 1024)?;
            connection.pragma_update(None, "cache_size", -2048)?;
            connection.set_prepared_statement_cache_capacity(64);
            plan_once(&connection)?;
            Ok(connection)
        };
        open().map_err(|e| self.failed("open its file", &e))
    }

    /// A connection that only reads.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn connect_reader(&self) -> Result<Connection, StoreError> {
        let open = || -> rusqlite::Result<Connection> {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(&self.path, flags)?;
            connection.busy_timeout(std::time::Duration::from_secs(5))?;
            connection.pragma_update(None, "cache_size", -1024)?;
            plan_once(&connection)?;
            Ok(connection)
        };
        open().map_err(|e| self.failed("open its file for reading", &e))
    }

    /// SQLite's own words name no file.
    fn failed(&self, action: &'static str, error: &rusqlite::Error) -> StoreError {
        StoreError::Unavailable { action, problem: format!("{}: {error}", self.path.display()) }
    }
}

/// Without this a statement is planned anew for other values.
fn plan_once(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Schema = Schema { migrations: &["CREATE TABLE a (x)"] };
    const TWO: Schema = Schema { migrations: &["CREATE TABLE a (x)", "ALTER TABLE a ADD COLUMN y"] };

    #[test]
    fn a_file_is_migrated_forward_and_a_newer_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        Database::open(directory.path(), "x.db", ONE).unwrap();
        let database = Database::open(directory.path(), "x.db", TWO).unwrap();
        database.connect_writer().unwrap().execute("INSERT INTO a (x, y) VALUES (1, 2)", []).unwrap();
        let error = Database::open(directory.path(), "x.db", ONE).unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 2, known: 1, .. }), "{error}");
    }

    #[test]
    fn a_file_that_is_no_database_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        std::fs::write(&path, [0xa5; 4096]).unwrap();
        let error = Database::open(directory.path(), "x.db", ONE).unwrap_err().to_string();
        assert!(error.contains(&format!("{}: file is not a database", path.display())), "{error}");
    }
}
