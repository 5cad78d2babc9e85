//! Forgetting what is old enough, a little at a time.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use transponder_core::Timestamp;
use transponder_runtime::{Context, clock::JumpGuard};

use crate::{
    config::RetentionConfig,
    outbox::{Outbox, SweepBefore},
};

/// Sweeps from time to time until shutdown; not while the wall clock may be wrong.
pub(crate) fn spawn(outbox: Arc<dyn Outbox>, retention: &RetentionConfig, context: &Context) {
    let (retention, context) = (retention.clone(), context.clone());
    let guard = JumpGuard::new(context.clock.as_ref());
    tokio::spawn(async move {
        let mut warned = false;
        while context.shutdown.or(tokio::time::sleep(retention.sweep)).await.is_some() {
            let Some(now) = guard.trusted(context.clock.as_ref()) else {
                if !std::mem::replace(&mut warned, true) {
                    tracing::error!(
                        "the wall clock has jumped: nothing is forgotten until it agrees again or a restart"
                    );
                }
                continue;
            };
            warned = false;
            if let Err(error) = sweep(outbox.as_ref(), &retention, now).await {
                tracing::warn!(%error, "sweep failed");
            }
        }
    });
}

async fn sweep(
    outbox: &dyn Outbox,
    retention: &RetentionConfig,
    now: Timestamp,
) -> Result<(), transponder_store::StoreError> {
    let ago = |age: Duration| {
        SignedDuration::try_from(age).ok().and_then(|age| now.checked_sub(age).ok()).unwrap_or(Timestamp::MIN)
    };
    let before = SweepBefore {
        now,
        delivered: ago(retention.delivered),
        bodies: ago(retention.bodies),
        dead: ago(retention.dead.max(retention.delivered)),
    };
    while outbox.sweep(before).await? > 0 {
        // Accepts go between.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
