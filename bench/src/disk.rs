//! What one durable write of a page costs, without anything around it.

use std::{
    fs::File,
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::Path,
    time::{Duration, Instant},
};

const PAGE: usize = 4096;
/// Pages that are written over in turn, as a log is that is reused.
const PAGES: u64 = 4096;

/// Writes pages, syncing each, and prints how long each took.
pub(crate) fn run(directory: &Path, time: Duration) -> anyhow::Result<()> {
    let path = directory.join(format!("bench-disk-{}", std::process::id()));
    let mut file = File::create(&path)?;
    let page = [0x5a_u8; PAGE];
    for _ in 0..PAGES {
        file.write_all(&page)?;
    }
    file.sync_all()?;
    let mut micros = Vec::new();
    let started = Instant::now();
    let mut number = 0;
    while started.elapsed() < time {
        let before = Instant::now();
        file.write_all_at(&page, (number % PAGES) * PAGE as u64)?;
        rustix::fs::fdatasync(&file)?;
        micros.push(u64::try_from(before.elapsed().as_micros())?);
        number += 1;
    }
    drop(file);
    std::fs::remove_file(path)?;
    crate::say(&serde_json::json!({ "micros": micros }));
    Ok(())
}
