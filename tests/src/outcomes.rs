//! What the API server has of the events of a fleet.

use std::time::Duration;

use crate::{Fleet, NAMESPACE, eventually};

impl Fleet {
    /// Waits until every stored event is delivered to all of its targets. Answers how many are stored.
    pub async fn all_delivered(&self, within: Duration) -> usize {
        let all = ["get", "releaseoutcomes", "-n", NAMESPACE];
        let open = ["--field-selector", "status.state!=Delivered"];
        let columns = ["--no-headers", "-o", "custom-columns=:.metadata.name,:.status.conditions"];
        eventually("every outcome is delivered", within, || async {
            // The API server itself may be away meanwhile.
            let open = self.server.kubectl(all.iter().chain(&open).chain(&columns)).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            match (open.code, open.text().lines().count(), open.text().lines().next()) {
                (Some(0), 0, _) => Ok(()),
                (Some(0), count, first) => Err(format!("{count} are open, such as {first:?}")),
                _ => Err(open.stderr),
            }
        })
        .await;
        self.server.kubectl(all.iter().chain(&["-o", "name"])).await.success().text().lines().count()
    }
}
