//! An error of the transport says what may mend it.
#![expect(clippy::unwrap_used, reason = "a helper of tests fails the test")]

mod support;

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    thread,
};

use support::{Act, Hook, Server, server::bind};

/// A server that answers whatever comes with these bytes.
fn answering(bytes: &'static [u8]) -> SocketAddr {
    let listener = bind(0);
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 16]);
            let _ = stream.write_all(bytes);
            // What is left unread would become a reset that overtakes the answer.
            let _ = io::copy(&mut stream, &mut io::sink());
        }
    });
    address
}

/// The last line of a hook that cannot deliver.
fn lost(mut hook: Hook) -> String {
    hook.set("HOOK_DEADLINE", "1s");
    let ran = hook.run();
    assert_eq!(ran.code, Some(1), "{ran}");
    ran.err.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_certificate_of_another_authority_is_told_with_the_ca_that_was_trusted() {
    let server = Server::tls([Act::status(202)]);
    let other = Server::tls([Act::status(202)]);
    for place in ["RELAY_CA_FILE", "Secret", "system"] {
        let mut hook = Hook::to(&server.url("/outcome/kind-prod"));
        let name = if place == "Secret" { "ca.crt" } else { "other.pem" };
        let path = hook.file(name, other.ca().unwrap());
        let trusted = match place {
            "RELAY_CA_FILE" => {
                hook.set("RELAY_CA_FILE", &path);
                format!("RELAY_CA_FILE {path}")
            }
            "Secret" => format!("ca.crt of RELAY_TOKEN_FILE {}", hook.path("token").display()),
            _ => {
                hook.set("SSL_CERT_FILE", &path);
                "the system's roots".to_owned()
            }
        };
        let lost = lost(hook);
        let expected = format!("(trusted: {trusted}; the relay's certificate is signed by another)");
        assert!(lost.contains("invalid peer certificate: ") && lost.ends_with(&expected), "{lost}");
    }
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn http_to_a_port_of_tls_and_https_to_a_plain_one_are_told() {
    // A fatal alert "protocol version", as servers answer what is no TLS.
    let tls = answering(b"\x15\x03\x03\x00\x02\x02\x46");
    let lost_http = lost(Hook::to(&format!("http://{tls}/outcome/kind-prod")));
    assert!(lost_http.ends_with("(the server seems to speak TLS: https://?)"), "{lost_http}");

    let plain = answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let lost_https = lost(Hook::to(&format!("https://{plain}/outcome/kind-prod")));
    assert!(lost_https.ends_with("(the server seems to speak plain http)"), "{lost_https}");
}
