//! One test at a time, where each uses what there is of this machine.

use tokio::sync::{Mutex, MutexGuard};

/// Waits until no other test of this program that asks for it runs. The test lets the next one go when it drops the guard.
pub async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
}
