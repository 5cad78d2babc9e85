//! `send` towards what is no relay.

#![expect(clippy::unwrap_used, reason = "in a test an unexpected failure should panic")]

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    process::Command,
};

/// stderr of a `send` to an address, which must fail.
fn refused(address: SocketAddr) -> String {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "a-relay-token-0123456789").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_transponder"))
        .args(["send", "--cluster", "c", "--app-namespace", "a", "--app", "a", "--env", "e", "--token-file"])
        .arg(token)
        .args(["--url", &format!("http://{address}")])
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_web_page_is_no_receipt_and_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let portal = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&stream).lines();
        // The body is the rest, and one JSON value without a line break.
        while !lines.next().unwrap().unwrap().is_empty() {}
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>";
        (&stream).write_all(answer.as_bytes()).unwrap();
        // Until the client goes away.
        lines.next();
    });
    let error = refused(address);
    portal.join().unwrap();
    assert!(
        error.contains("the edge answered 200, but with a web page (text/html): that is no relay"),
        "{error}"
    );
}

#[test]
fn the_cause_of_a_failed_connection_is_said_once() {
    // Bound and dropped: nobody listens there.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = refused(address);
    assert_eq!(error.matches("Connection refused").count(), 1, "{error}");
}
