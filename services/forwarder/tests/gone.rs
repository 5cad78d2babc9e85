//! A forwarder that has gone without a word, as a deleted pod does.
#![expect(clippy::unwrap_used, reason = "in a test an unexpected failure should panic")]

mod common;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{Running, event};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
};
use transponder_core::ServiceName;
use transponder_proto::v1::forwarder_client::ForwarderClient;

/// Passes connections on, until those that are open fall silent: neither side hears that the other has gone.
struct Relay {
    address: SocketAddr,
    silence: watch::Sender<u32>,
    connections: Arc<AtomicUsize>,
}

impl Relay {
    async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (silence, silenced) = watch::channel(0);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let mut silenced = silenced.clone();
                silenced.mark_unchanged();
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(target).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        // The connections stay open, and nobody reads them.
                        _ = silenced.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, silence, connections }
    }
}

#[tokio::test]
async fn a_peer_that_has_gone_without_a_word_is_connected_anew_within_half_a_minute() {
    let running = Running::start().await;
    let relay = Relay::to(running.address).await;
    let channel = running.mesh.channel(ServiceName::Edge, ServiceName::Forwarder, relay.address);
    let mut edge = ForwarderClient::new(channel);
    edge.forward(event()).await.unwrap();
    relay.silence.send_modify(|times| *times += 1);
    let again = async { while edge.forward(event()).await.is_err() {} };
    tokio::time::timeout(Duration::from_secs(30), again).await.unwrap();
    assert_eq!(relay.connections.load(Ordering::Relaxed), 2);
}
