//! The real binary against a server that behaves, and against ones that do not.

mod support;

use std::time::{Duration, SystemTime};

use support::{Act, Hook, Server, TOKEN, server::bind, write};
use transponder_core::{ClusterName, Event};

#[test]
fn a_report_is_posted_once_with_token_and_content_type_and_said_on_one_line() {
    let server = Server::tls([Act::status(202)]);
    let ran = Hook::new(&server).run();
    assert_eq!(ran.code, Some(0), "{ran}");
    let [request] = &server.requests()[..] else { panic!("{ran}") };
    assert_eq!(request.line, "POST /outcome/kind-prod HTTP/1.1");
    assert_eq!(request.header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(request.header("content-type"), "application/cloudevents+json");
    assert_eq!(request.header("content-encoding"), "");
    let event = Event::parse(&request.body).unwrap();
    let key = event.key(&ClusterName::new("kind-prod").unwrap());
    assert_eq!(
        ran.out,
        format!("transponder-hook: delivered Succeeded: key={key} status=202 id={} attempts=1\n", event.id)
    );
    assert_eq!(ran.err, "");
}

#[test]
fn a_plain_server_is_used_when_the_url_says_so_with_a_warning() {
    let server = Server::plain([Act::status(200)]);
    let ran = Hook::new(&server).run();
    assert_eq!((ran.code, server.requests().len()), (Some(0), 1), "{ran}");
    assert_eq!(
        ran.err,
        "transponder-hook: warning: RELAY_URL is http://: the token goes over plain http, and whoever is on the way \
         can read it\n"
    );
}

#[test]
fn statuses_that_may_pass_are_tried_again_with_the_same_bytes_and_others_are_final() {
    for (status, attempts, code) in [
        (408, 2, 0),
        (425, 2, 0),
        (429, 2, 0),
        (500, 2, 0),
        (502, 2, 0),
        (503, 2, 0),
        (400, 1, 1),
        (403, 1, 1),
        (404, 1, 1),
        (409, 1, 1),
        (413, 1, 1),
        (415, 1, 1),
    ] {
        let server = Server::plain([Act::status(status), Act::status(202)]);
        let ran = Hook::new(&server).run();
        let requests = server.requests();
        assert_eq!((requests.len(), ran.code), (attempts, Some(code)), "{status}: {ran}");
        assert!(requests.iter().all(|request| request.body == requests[0].body), "{status}");
        assert!(ran.err.contains(&format!("answered {status}")), "{status}: {ran}");
        assert_eq!(ran.err.contains("LOST"), code == 1, "{status}: {ran}");
        // A connection that was kept would be one that can go stale.
        assert_eq!(server.connections(), attempts, "{status}");
    }
}

#[test]
fn retry_after_is_honoured_in_both_forms_and_garbage_falls_back() {
    // Dates have whole seconds, so three from now are at least two.
    let date = || httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3));
    let past = "Mon, 01 Jan 1990 00:00:00 GMT";
    for (value, least) in [
        (&(|| "1".into()) as &dyn Fn() -> String, Duration::from_secs(1)),
        (&date, Duration::from_secs(1)),
        (&|| "soon".into(), Duration::ZERO),
        (&|| "-5".into(), Duration::ZERO),
        (&|| past.into(), Duration::ZERO),
    ] {
        let value = value();
        let value = value.as_str();
        let server = Server::plain([Act::with(503, "Retry-After", value), Act::status(202)]);
        let ran = Hook::new(&server).run();
        let requests = server.requests();
        assert_eq!((ran.code, requests.len()), (Some(0), 2), "{value}: {ran}");
        let waited = requests[1].at - requests[0].at;
        assert!(waited >= least, "{value}: {waited:?}");
        assert!(waited < Duration::from_secs(4), "{value}: {waited:?}");
    }
}

#[test]
fn a_retry_after_beyond_the_deadline_leaves_one_last_attempt_in_it() {
    let server = Server::plain([Act::with(503, "Retry-After", "3600"), Act::status(202)]);
    let mut hook = Hook::new(&server);
    hook.set("HOOK_DEADLINE", "2s");
    let ran = hook.run();
    assert_eq!((ran.code, server.requests().len()), (Some(0), 2), "{ran}");
    assert!(ran.took < Duration::from_secs(2), "{ran}");
}

#[test]
fn a_cut_connection_is_tried_again_with_identical_bytes_and_the_same_id() {
    let server = Server::tls([Act::Cut, Act::Cut, Act::status(200)]);
    let ran = Hook::new(&server).run();
    let requests = server.requests();
    assert_eq!((ran.code, requests.len()), (Some(0), 3), "{ran}");
    assert_eq!(requests[0].body, requests[2].body);
    assert_eq!(requests[0].id(), requests[2].id());
    assert!(ran.out.contains("status=200") && ran.out.contains("attempts=3"), "{ran}");
    assert_eq!(ran.err.lines().count(), 2, "{ran}");
}

#[test]
fn a_server_that_hangs_does_not_hold_the_hook_beyond_its_deadline() {
    let silent = bind(0);
    let hanging = Server::tls([Act::Hang]);
    for url in [
        hanging.url("/outcome/kind-prod"),
        format!("http://{}/outcome/kind-prod", silent.local_addr().unwrap()),
        // No TLS handshake ever comes.
        format!("https://{}/outcome/kind-prod", silent.local_addr().unwrap()),
    ] {
        let mut hook = Hook::to(&url);
        if let Some(ca) = hanging.ca() {
            let path = hook.file("ca.pem", ca);
            hook.set("RELAY_CA_FILE", &path);
        }
        hook.set("HOOK_DEADLINE", "1500ms");
        let ran = hook.run();
        assert_eq!(ran.code, Some(1), "{url}: {ran}");
        assert!(ran.took < Duration::from_secs(2), "{url}: {ran}");
        assert!(ran.err.contains("LOST") && ran.err.contains("no answer in time"), "{url}: {ran}");
    }
}

#[test]
fn a_first_attempt_that_hangs_leaves_time_for_a_second() {
    let server = Server::tls([Act::Hang, Act::status(202)]);
    let ran = Hook::new(&server).run();
    assert_eq!((ran.code, server.requests().len()), (Some(0), 2), "{ran}");
}

#[test]
fn a_status_counts_even_when_its_body_never_comes() {
    let server = Server::plain([Act::with(202, "Transfer-Encoding", "chunked")]);
    let ran = Hook::new(&server).run();
    assert_eq!((ran.code, server.requests().len()), (Some(0), 1), "{ran}");
}

#[test]
fn a_web_page_is_no_delivery_and_the_relay_behind_it_gets_the_report_once_it_answers() {
    let page = "<html>Please accept the terms</html>";
    let html = || vec![("Content-Type", "text/html; charset=UTF-8".to_owned())];
    let cut = Act::Answer(200, vec![("Transfer-Encoding", "chunked".to_owned())], format!("24\r\n{page}"));
    let large = Act::body(200, &format!("{page}{}", " ".repeat(100_000)));
    let server = Server::plain([Act::Answer(200, html(), page.to_owned()), cut, large, Act::status(202)]);
    let mut hook = Hook::new(&server);
    hook.set("HOOK_DEADLINE", "20s");
    let ran = hook.run();
    assert_eq!((ran.code, server.requests().len()), (Some(0), 4), "{ran}");
    assert!(ran.out.contains("status=202") && !ran.err.contains("accept"), "{ran}");

    let portal = Server::plain([Act::Answer(200, html(), page.to_owned())]);
    let mut hook = Hook::new(&portal);
    hook.set("HOOK_DEADLINE", "1s");
    let ran = hook.run();
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{ran}");
    let lost = ran.err.lines().last().unwrap();
    let why = "the relay answered 200, but with a web page (text/html): that is no relay";
    assert!(lost.contains("LOST") && lost.ends_with(why), "{ran}");
}

#[test]
fn a_relay_that_comes_up_later_gets_the_report() {
    let address = bind(0).local_addr().unwrap();
    let mut hook = Hook::to(&format!("http://{address}/outcome/kind-prod"));
    hook.set("HOOK_DEADLINE", "10s");
    let mut running = hook.start();
    running.wait_for("attempt 1: ");
    let server = Server::plain_at(bind(address.port()), [Act::status(202)]);
    let ran = running.end();
    assert_eq!((ran.code, server.requests().len()), (Some(0), 1), "{ran}");
    assert!(ran.err.contains("refused"), "{ran}");
}

#[test]
fn a_redirect_is_not_followed_and_the_token_goes_nowhere_else() {
    for status in [301, 302, 303, 307, 308] {
        let other = Server::plain([Act::status(202)]);
        let server = Server::plain([Act::with(status, "Location", &other.url("/outcome/kind-prod"))]);
        let ran = Hook::new(&server).run();
        assert_eq!((ran.code, server.requests().len()), (Some(1), 1), "{status}: {ran}");
        assert_eq!(other.connections(), 0, "{status}");
        assert!(ran.err.contains("a redirect is not followed"), "{status}: {ran}");
    }
}

#[test]
fn proxies_of_the_environment_are_not_asked() {
    let proxy = Server::plain([Act::status(202)]);
    let server = Server::plain([Act::status(202)]);
    let mut hook = Hook::new(&server);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        hook.set(name, &proxy.url("/"));
    }
    let ran = hook.run();
    assert_eq!((ran.code, server.requests().len(), proxy.connections()), (Some(0), 1, 0), "{ran}");
}

#[test]
fn a_certificate_of_another_ca_or_for_another_name_is_refused_before_the_token_is_sent() {
    let server = Server::tls([Act::status(202)]);
    let other = Server::tls([Act::status(202)]);
    let misnamed = Server::named("relay.test", [Act::status(202)]);
    let misnamed_url = format!("https://{}/outcome/kind-prod", misnamed.address());
    for (url, ca) in [
        (server.url("/outcome/kind-prod"), other.ca()),
        (server.url("/outcome/kind-prod"), None),
        (misnamed_url, misnamed.ca()),
    ] {
        let mut hook = Hook::to(&url);
        hook.set("HOOK_DEADLINE", "1s");
        if let Some(ca) = ca {
            let path = hook.file("ca.pem", ca);
            hook.set("RELAY_CA_FILE", &path);
        }
        let ran = hook.run();
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.err.contains("certificate"), "{ran}");
    }
    assert_eq!(server.requests().len() + misnamed.requests().len(), 0);
}

#[test]
fn a_ca_file_that_comes_late_is_used_from_the_next_attempt_on() {
    let server = Server::tls([Act::status(202)]);
    let mut hook = Hook::new(&server);
    hook.set("RELAY_CA_FILE", hook.path("late.pem").to_str().unwrap());
    let mut running = hook.start();
    running.wait_for("attempt 1: ");
    hook.file("late.pem", server.ca().unwrap());
    let ran = running.end();
    assert_eq!((ran.code, server.requests().len()), (Some(0), 1), "{ran}");
}

#[test]
fn the_id_survives_a_retry_and_differs_between_jobs_and_phases() {
    let server = Server::plain([Act::status(202)]);
    let mut hook = Hook::new(&server);
    let mut id = |pairs: &[(&str, &str)]| {
        for (name, value) in pairs {
            hook.set(name, value);
        }
        hook.run();
        server.requests().last().unwrap().id()
    };
    let first = id(&[("JOB_NAME", "platform-outcome-abcdef0-postsync-1789380000")]);
    assert_eq!(first, id(&[("JOB_UID", "uid-2")]), "the name decides where it names the operation");
    let next = id(&[("JOB_NAME", "platform-outcome-abcdef0-postsync-1789380060")]);
    assert_ne!(first, next);
    let fixed = id(&[("JOB_NAME", "platform-outcome-postsync")]);
    assert_ne!(fixed, id(&[("JOB_UID", "uid-3")]), "a fixed name says nothing");
    assert_ne!(fixed, id(&[("JOB_UID", "uid-2"), ("PHASE", "Syncing")]), "each phase has its own type");
}

#[test]
fn a_pod_that_is_killed_after_the_post_sends_the_same_event_again() {
    let server = Server::plain([Act::Hang, Act::status(200)]);
    let hook = Hook::new(&server);
    let running = hook.start();
    server.wait_for(1);
    running.kill();
    let ran = hook.run();
    let requests = server.requests();
    assert_eq!((ran.code, requests.len()), (Some(0), 2), "{ran}");
    assert_eq!(requests[0].id(), requests[1].id());
}

#[test]
fn a_closed_stdout_is_no_failure() {
    let server = Server::plain([Act::status(202)]);
    let hook = Hook::new(&server);
    assert_eq!(hook.start().deafen(), Some(0));
    let server = Server::plain([Act::status(400)]);
    let mut hook = Hook::new(&server);
    hook.set("HOOK_FAILURE_POLICY", "ignore");
    assert_eq!(hook.start().deafen(), Some(0));
}

#[test]
fn a_server_that_echoes_the_token_does_not_bring_it_into_the_output() {
    let echo = format!("{{\"detail\":\"you sent Authorization: Bearer {TOKEN}\\ndelivered\"}}");
    for status in [400, 401, 503] {
        let server = Server::plain([Act::body(status, &echo)]);
        let mut hook = Hook::new(&server);
        hook.set("HOOK_DEADLINE", "1s");
        let ran = hook.run();
        assert_eq!(ran.code, Some(1), "{ran}");
        assert!(ran.err.contains("Bearer [token]\\ndelivered"), "{ran}");
    }
}

#[test]
fn a_401_is_tried_again_once_the_token_file_has_another_token() {
    let mut hook = Hook::to("http://127.0.0.1:1/outcome/kind-prod");
    let path = hook.path("token");
    let server = Server::plain([
        Act::after(move || drop(write(path.clone(), "a-newer-token-0123456789")), Act::status(401)),
        Act::status(202),
    ]);
    hook.set("RELAY_URL", &server.url("/outcome/kind-prod"));
    let ran = hook.run();
    let requests = server.requests();
    assert_eq!((ran.code, requests.len()), (Some(0), 2), "{ran}");
    assert_eq!(requests[0].header("authorization"), format!("Bearer {TOKEN}"));
    assert_eq!(requests[1].header("authorization"), "Bearer a-newer-token-0123456789");
    assert_eq!(requests[0].body, requests[1].body);
    assert!(!ran.err.contains("a-newer-token"), "{ran}");
}

#[test]
fn a_401_with_the_same_token_is_given_up_soon() {
    let server = Server::plain([Act::status(401)]);
    // The second is over before a newer token was waited for long enough.
    for (deadline, before, cut) in
        [("30s", Duration::from_secs(8), false), ("1s", Duration::from_secs(2), true)]
    {
        let known = server.requests().len();
        let mut hook = Hook::new(&server);
        hook.set("HOOK_DEADLINE", deadline);
        let ran = hook.run();
        assert_eq!((ran.code, server.requests().len()), (Some(1), known + 1), "{ran}");
        assert!(ran.took < before, "{ran}");
        let lost = ran.err.lines().last().unwrap();
        assert!(lost.contains("the relay refuses the token (401), and there is no newer: "), "{ran}");
        assert_eq!(lost.contains("no attempt more fits"), cut, "{ran}");
    }
}
