//! A line between two programs that can be cut, and that can lose what comes back.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{broadcast, watch},
    task::JoinHandle,
};

/// An address whose connections go to one other.
pub struct Line {
    address: SocketAddr,
    answers: watch::Sender<bool>,
    cut: broadcast::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Line {
    /// Listens, and passes everything on.
    ///
    /// # Panics
    ///
    /// When it cannot.
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind a line");
        let address = listener.local_addr().expect("an address");
        let answers = watch::Sender::new(true);
        let cut = broadcast::Sender::new(1);
        let (passing, cutting) = (answers.subscribe(), cut.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (passing, mut cut) = (passing.clone(), cutting.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = pass(stream, target, passing) => {}
                        _ = cut.recv() => {}
                    }
                });
            }
        });
        Self { address, answers, cut, accepting }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses every answer from now on; what is asked still arrives, over TLS 1.3 by new connections as well.
    pub fn lose_answers(&self) {
        self.answers.send_replace(false);
    }

    /// Ends all connections. New ones are whole.
    pub fn cut(&self) {
        self.answers.send_replace(true);
        let _ = self.cut.send(());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = self.cut.send(());
    }
}

async fn pass(stream: TcpStream, target: SocketAddr, answers: watch::Receiver<bool>) {
    let Ok(to) = TcpStream::connect(target).await else { return };
    let ((asked, back), (answer, on)) = (stream.into_split(), to.into_split());
    let sent = AtomicUsize::new(0);
    tokio::select! {
        () = pass_on(asked, on, &sent) => {}
        () = pass_back(answer, back, &sent, answers) => {}
    }
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, sent: &AtomicUsize) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        sent.fetch_add(1, Ordering::Relaxed);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn pass_back(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    sent: &AtomicUsize,
    answers: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        // The answer to the first words is part of the handshake of TLS 1.3, without which nothing is asked.
        if !*answers.borrow() && sent.load(Ordering::Relaxed) > 1 {
            // What follows a gap would make no sense.
            return std::future::pending().await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
