//! What a Service of Kubernetes does for its pods: one address, any of several behind it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// An address whose connections go to one of several others, in turn; to the next where one refuses.
pub struct Balancer {
    address: SocketAddr,
    behind: Arc<Mutex<Vec<SocketAddr>>>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Balancer {
    /// Listens, with nobody behind it.
    ///
    /// # Panics
    ///
    /// When it cannot.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind a balancer");
        let address = listener.local_addr().expect("an address");
        let behind = Arc::new(Mutex::new(Vec::new()));
        let all = behind.clone();
        let accepting = tokio::spawn(async move {
            let mut turn = 0;
            while let Ok((stream, _)) = listener.accept().await {
                turn += 1;
                tokio::spawn(pass(stream, all.clone(), turn));
            }
        });
        Self { address, behind, accepting }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends new connections there, too.
    pub fn add(&self, address: SocketAddr) {
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        if !behind.contains(&address) {
            behind.push(address);
        }
    }

    /// Sends no new connections there any more.
    pub fn remove(&self, address: SocketAddr) {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != address);
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn pass(mut stream: TcpStream, behind: Arc<Mutex<Vec<SocketAddr>>>, turn: usize) {
    let mut all = behind.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if all.is_empty() {
        return;
    }
    let first = turn % all.len();
    all.rotate_left(first);
    for address in all {
        if let Ok(Ok(mut to)) = timeout(Duration::from_secs(1), TcpStream::connect(address)).await {
            let _ = copy_bidirectional(&mut stream, &mut to).await;
            return;
        }
    }
}
