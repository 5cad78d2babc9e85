//! Where the token comes from, when it comes, and where it may go.

mod support;

use std::{
    fs,
    time::{Duration, Instant},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use support::{Act, Hook, Server, TOKEN, pod::Pod};

#[test]
fn white_space_around_the_token_is_trimmed() {
    let server = Server::plain([Act::status(202)]);
    let hook = Hook::new(&server);
    hook.file("token", &format!(" {TOKEN}\r\n"));
    assert_eq!(hook.run().code, Some(0));
    assert_eq!(server.requests()[0].header("authorization"), format!("Bearer {TOKEN}"));
}

#[test]
fn a_token_with_control_characters_within_is_refused_and_not_shown() {
    let server = Server::plain([Act::status(202)]);
    for within in ["\n", "\r\nX-Header: ", "\0", "\u{1b}"] {
        let hook = Hook::new(&server);
        hook.file("token", &format!("secret-one{within}secret-two"));
        let ran = hook.run();
        assert_eq!(ran.code, Some(2), "{ran}");
        assert!(ran.err.contains("has control characters within"), "{ran}");
        assert!(!ran.err.contains("secret-one") && !ran.err.contains("secret-two"), "{ran}");
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_token_file_that_comes_late_is_waited_for() {
    let server = Server::plain([Act::status(202)]);
    for before in [None, Some("\n")] {
        let hook = Hook::new(&server);
        match before {
            None => fs::remove_file(hook.path("token")).unwrap(),
            Some(content) => drop(hook.file("token", content)),
        }
        let mut running = hook.start();
        running.wait_for("waiting for a token");
        hook.file("token", TOKEN);
        let ran = running.end();
        assert_eq!(ran.code, Some(0), "{ran}");
        let waiting = ran.err.lines().filter(|line| line.contains("waiting for a token")).count();
        assert_eq!(waiting, 1, "one line, however often it looked: {ran}");
    }
}

#[test]
fn a_token_that_never_comes_is_waited_for_until_the_deadline() {
    let server = Server::plain([Act::status(202)]);
    let mut hook = Hook::new(&server);
    hook.set("HOOK_DEADLINE", "1s");
    fs::remove_file(hook.path("token")).unwrap();
    let ran = hook.run();
    assert_eq!(ran.code, Some(1), "{ran}");
    assert!(ran.took < Duration::from_millis(1500), "{ran}");
    assert!(ran.err.contains("no token: RELAY_TOKEN_FILE"), "{ran}");
}

#[test]
fn the_token_goes_to_no_other_origin_than_the_secrets() {
    let server = Server::plain([Act::status(202)]);
    let port = server.address().port();
    for (origin, code) in [
        (format!("http://127.0.0.1:{port}"), 0),
        (format!("http://127.0.0.1:{port}/ \n"), 0),
        ("\n".to_owned(), 0),
        (format!("https://127.0.0.1:{port}"), 2),
        (format!("http://localhost:{port}"), 2),
        ("http://127.0.0.1".to_owned(), 2),
        (format!("http://127.0.0.1:{port}.example"), 2),
        (format!("127.0.0.1:{port}"), 2),
        ("relay.example".to_owned(), 2),
    ] {
        let before = server.connections();
        let hook = Hook::new(&server);
        hook.file("relay-origin", &origin);
        let ran = hook.run();
        assert_eq!(ran.code, Some(code), "{origin}: {ran}");
        assert_eq!(server.connections() > before, code == 0, "{origin}");
        assert_eq!(ran.err.contains("relay-origin"), code == 2, "{origin}: {ran}");
    }
}

fn secret(keys: &[(&str, &str)]) -> Act {
    let data: serde_json::Map<_, _> =
        keys.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
    Act::body(200, &serde_json::json!({ "kind": "Secret", "data": data }).to_string())
}

#[test]
fn without_a_file_the_token_and_the_ca_are_read_from_the_secret_as_the_pods_account() {
    let relay = Server::tls([Act::status(202)]);
    let api = Server::tls([secret(&[
        ("token", &format!("{TOKEN}\n")),
        ("relay-origin", &relay.url("")),
        ("ca.crt", relay.ca().unwrap()),
    ])]);
    let (code, said) = Pod::new(&relay, &api).run();
    assert_eq!(code, 0, "{said}");
    let asked = &api.requests()[0];
    assert_eq!(asked.line, "GET /api/v1/namespaces/shop-prod/secrets/platform-outcome-relay-token HTTP/1.1");
    assert_eq!(asked.header("authorization"), "Bearer account-token");
    assert_eq!(relay.requests()[0].header("authorization"), format!("Bearer {TOKEN}"));
}

#[test]
fn a_secret_that_is_not_there_yet_not_permitted_yet_or_empty_is_asked_for_again() {
    let relay = Server::plain([Act::status(202)]);
    let api = Server::tls([
        Act::status(404),
        Act::status(403),
        Act::status(500),
        Act::Cut,
        Act::body(200, "nonsense"),
        secret(&[]),
        secret(&[("token", "\n")]),
        secret(&[("token", TOKEN)]),
    ]);
    let (code, said) = Pod::new(&relay, &api).run();
    assert_eq!((code, api.requests().len()), (0, 8), "{said}");
    assert!(said.contains("may not get the Secret") && said.contains("there is no Secret"), "{said}");
}

#[test]
fn the_file_is_used_as_soon_as_it_is_there_and_the_secret_until_then() {
    let relay = Server::plain([Act::status(202)]);
    let api = Server::tls([secret(&[("token", "token-of-the-secret")])]);
    let mut pod = Pod::new(&relay, &api);
    let path = pod.hook.path("late").to_str().unwrap().to_owned();
    pod.hook.set("RELAY_TOKEN_FILE", &path);
    assert_eq!(pod.run().0, 0);
    pod.hook.file("late", TOKEN);
    assert_eq!(pod.run().0, 0);
    let sent: Vec<_> = relay.requests().iter().map(|r| r.header("authorization").to_owned()).collect();
    assert_eq!(sent, ["Bearer token-of-the-secret".to_owned(), format!("Bearer {TOKEN}")]);
    assert_eq!(api.requests().len(), 1);
}

#[test]
fn a_401_is_tried_again_with_what_the_secret_has_by_now() {
    let relay = Server::plain([Act::status(401), Act::status(401), Act::status(202)]);
    let api = Server::tls([
        secret(&[("token", "second-token-0123456789")]),
        secret(&[("token", "second-token-0123456789")]),
        secret(&[("token", "third-token-0123456789")]),
    ]);
    let mut pod = Pod::new(&relay, &api);
    // The mounted file lags behind the Secret by a minute.
    let path = pod.hook.path("token").to_str().unwrap().to_owned();
    pod.hook.set("RELAY_TOKEN_FILE", &path);
    let (code, said) = pod.run();
    assert_eq!(code, 0, "{said}");
    let sent: Vec<_> = relay.requests().iter().map(|r| r.header("authorization").to_owned()).collect();
    assert_eq!(
        sent,
        [
            format!("Bearer {TOKEN}"),
            "Bearer second-token-0123456789".to_owned(),
            "Bearer third-token-0123456789".to_owned()
        ]
    );
}

#[test]
fn a_secret_that_forbids_the_address_stops_the_token() {
    let relay = Server::plain([Act::status(202)]);
    let api = Server::tls([secret(&[("token", TOKEN), ("relay-origin", "https://relay.example:8443")])]);
    let (code, said) = Pod::new(&relay, &api).run();
    assert_eq!((code, relay.connections()), (2, 0), "{said}");
    assert!(
        said.contains("RELAY_URL has the origin") && said.contains("https://relay.example:8443"),
        "{said}"
    );
}

#[test]
fn the_accounts_token_goes_to_no_server_that_its_ca_does_not_know() {
    let relay = Server::plain([Act::status(202)]);
    let (api, other) = (Server::tls([secret(&[("token", TOKEN)])]), Server::tls([Act::status(404)]));
    let mut pod = Pod::new(&relay, &api);
    pod.hook.set("HOOK_DEADLINE", "1s");
    pod.hook.set("KUBERNETES_SERVICE_PORT", &other.address().port().to_string());
    let (code, said) = pod.run();
    assert_eq!((code, other.requests().len()), (1, 0), "{said}");
    assert!(said.contains("the API server cannot be reached"), "{said}");
}

#[test]
fn an_api_server_that_hangs_does_not_hold_the_hook_beyond_its_deadline() {
    let relay = Server::plain([Act::status(202)]);
    let api = Server::tls([Act::Hang]);
    let mut pod = Pod::new(&relay, &api);
    pod.hook.set("HOOK_DEADLINE", "1500ms");
    let start = Instant::now();
    let (code, said) = pod.run();
    assert_eq!(code, 1, "{said}");
    assert!(start.elapsed() < Duration::from_secs(2), "{said}");
}

#[test]
fn a_redirect_of_the_api_server_is_not_followed() {
    let relay = Server::plain([Act::status(202)]);
    let other = Server::plain([Act::status(202)]);
    let api = Server::tls([Act::with(302, "Location", &other.url("/")), secret(&[("token", TOKEN)])]);
    let (code, said) = Pod::new(&relay, &api).run();
    assert_eq!((code, other.connections()), (0, 0), "{said}");
}
