//! Clients that mean harm, or know no better: others are served meanwhile, every deadline holds, memory stays bounded.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};
use transponder_tests::{Broker, LONG, Mesh, SHORT, TestEvent, Wire, alone, eventually, usage};

/// What an honest client waits for at most.
const PROMPT: Duration = Duration::from_secs(1);
/// What the whole mesh may hold, whatever is done to it.
const MEMORY_MIB: u64 = 400;

/// As many open files as are allowed; what is started from here inherits that.
fn open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}

async fn mesh(broker: &Broker, settings: &[(&str, &str)]) -> Mesh {
    let mut mesh = Mesh::new(broker).await;
    mesh.add_cluster("kind-other").await;
    settings.iter().for_each(|(key, value)| mesh.set(key, value));
    mesh.run().await;
    mesh
}

/// Posts twenty times as an honest client of `kind-prod`, over fresh connections and a kept one in turns. Answers the
/// slowest.
async fn honest(mesh: &Mesh, what: &str) -> Duration {
    let mut slowest = Duration::ZERO;
    for number in 0..20 {
        let event = TestEvent::new("Succeeded", &format!("{what}-{number}"));
        let started = Instant::now();
        let status = match number % 2 {
            0 => mesh.curl("kind-prod", &event.body(), &[]).await.map(|answer| answer.status),
            _ => mesh.post("kind-prod", event.body()).await.map(|(status, _)| status),
        };
        let took = started.elapsed();
        assert_eq!(status, Ok(202), "{what}, post {number}, after {took:?}");
        assert!(took < PROMPT, "{what}: post {number} took {took:?}");
        slowest = slowest.max(took);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{what}: the slowest of 20 honest posts took {slowest:?}");
    slowest
}

fn assert_memory(mesh: &mut Mesh, what: &str) {
    let used = usage::anonymous_mib(mesh.process().pid());
    println!("{what}: {used} MiB of anonymous memory");
    assert!(used < MEMORY_MIB, "{what}: {used} MiB");
}

fn post_head(mesh: &Mesh, cluster: &str, more: &str) -> String {
    let token = mesh.token(cluster);
    format!(
        "POST /outcome/{cluster} HTTP/1.1\r\nHost: edge\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\n{more}\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_idle_connections_delay_nobody() {
    let _alone = alone().await;
    let wanted = usize::try_from(open_files().saturating_sub(1000)).unwrap().min(10_000);
    if wanted < 10_000 {
        println!("the limit on open files allows {wanted} connections only");
    }
    let broker = Broker::start().await;
    let mut mesh =
        mesh(&broker, &[("edge.http.handshake_timeout", "5m"), ("edge.http.idle_timeout", "5m")]).await;
    let address = mesh.address("edge");
    let mut silent = Vec::new();
    for _ in 0..wanted / 2 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let tls = Arc::new(mesh.client_tls());
    let (mut opening, mut idle) = (JoinSet::new(), Vec::new());
    for number in 0..wanted - silent.len() {
        let tls = tls.clone();
        opening.spawn(async move { Wire::connect_with(address, tls).await });
        if number % 64 == 63 {
            while let Some(wire) = opening.join_next().await {
                idle.push(wire.unwrap().unwrap());
            }
        }
    }
    while let Some(wire) = opening.join_next().await {
        idle.push(wire.unwrap().unwrap());
    }
    eventually("all connections are held", LONG, || async {
        let open = mesh.metric("transponder_edge_connections", &[]).await;
        if open >= wanted as f64 { Ok(()) } else { Err(format!("{open} of {wanted}")) }
    })
    .await;
    honest(&mesh, &format!("{wanted} idle connections")).await;
    assert_memory(&mut mesh, &format!("{wanted} idle connections"));
    let used = usage::cpu_percent(mesh.process().pid(), Duration::from_secs(3)).await;
    assert!(used < 20.0, "idle connections cost {used} % of a core");
    assert_eq!((silent.len(), idle.len()), (wanted / 2, wanted - wanted / 2), "none was closed by us");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_limit_of_connections_strangers_make_room_for_honest_clients() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mut settings = vec![("edge.http.handshake_timeout", "5m"), ("edge.http.idle_timeout", "5m")];
    settings.push(("edge.http.max_connections", "200"));
    let mesh = mesh(&broker, &settings).await;
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(TcpStream::connect(mesh.address("edge")).await.unwrap());
    }
    honest(&mesh, "600 strangers for 200 places").await;
    assert!(mesh.metric("transponder_edge_connections_closed_total", &["evicted"]).await >= 400.0);
    assert!(mesh.metric("transponder_edge_connections", &[]).await <= 200.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dribblers_slow_readers_and_a_flooding_cluster_delay_nobody_else() {
    let _alone = alone().await;
    open_files();
    let broker = Broker::start().await;
    let mut mesh = mesh(&broker, &[("edge.budget.burst", "100")]).await;
    let tls = Arc::new(mesh.client_tls());
    let address = mesh.address("edge");
    let mut attack = JoinSet::new();
    let body_head = post_head(&mesh, "kind-other", "Content-Length: 200000\r\n");
    let reads = format!(
        "GET /outcome/kind-other/{} HTTP/1.1\r\nHost: e\r\nAuthorization: Bearer {}\r\n\r\n",
        "0".repeat(40),
        mesh.token("kind-other")
    )
    .repeat(400);
    for number in 0..400 {
        let (tls, body_head, reads) = (tls.clone(), body_head.clone(), reads.clone());
        attack.spawn(async move {
            // Each comes back when it has been thrown out.
            loop {
                let Ok(mut wire) = Wire::connect_with(address, tls.clone()).await else { continue };
                let (first, drop) = match number % 4 {
                    0 => ("POST /outcome/kind-other HTTP/1.1\r\nX-Long: ".to_owned(), "x"),
                    1 | 2 => (body_head.clone(), "{"),
                    _ => (reads.clone(), ""),
                };
                let mut going = wire.send(first).await;
                while going.is_ok() {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    going = if drop.is_empty() { Ok(()) } else { wire.send(drop).await };
                }
            }
        });
    }
    let flood = Arc::new(std::sync::Mutex::new(std::collections::BTreeMap::<u16, usize>::new()));
    let other = TestEvent::new("Succeeded", "flood").cluster("kind-other").body();
    let url = mesh.url("/outcome/kind-other");
    let client = reqwest::Client::builder().tls_backend_preconfigured(mesh.client_tls()).no_proxy();
    let client = client.build().unwrap();
    for _ in 0..8 {
        let request = client
            .post(&url)
            .bearer_auth(mesh.token("kind-other"))
            .header("content-type", "application/json")
            .body(other.clone());
        let flood = flood.clone();
        attack.spawn(async move {
            loop {
                let Ok(answer) = request.try_clone().unwrap().send().await else { continue };
                *flood.lock().unwrap().entry(answer.status().as_u16()).or_default() += 1;
            }
        });
    }
    eventually("the flood is over its budget", LONG, || async {
        let seen = flood.lock().unwrap().clone();
        if seen.get(&429).is_some_and(|n| *n > 100) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    honest(&mesh, "dribblers and a flood").await;
    assert_memory(&mut mesh, "dribblers and a flood");
    attack.shutdown().await;
    let seen = flood.lock().unwrap().clone();
    println!("the flood was answered {seen:?}");
    assert!(seen.keys().all(|status| [200, 202, 429].contains(status)), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_nothing_or_too_little_is_dropped_in_time() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let settings = [
        ("edge.http.handshake_timeout", "2s"),
        ("edge.http.idle_timeout", "3s"),
        ("edge.http.body_timeout", "2s"),
    ];
    let mesh = mesh(&broker, &settings).await;
    let (address, limit) = (mesh.address("edge"), Duration::from_secs(15));

    let silent = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        dropped("a silent client", Duration::from_secs(2), limit, async {
            drop(stream.read_to_end(&mut Vec::new()).await);
        })
        .await;
    };
    let stalled = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The first bytes of a ClientHello.
        stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.unwrap();
        dropped("a stalled handshake", Duration::from_secs(2), limit, async {
            drop(stream.read_to_end(&mut Vec::new()).await);
        })
        .await;
    };
    let idle = async {
        let mut wire = Wire::connect(&mesh).await.unwrap();
        dropped("an idle connection", Duration::from_secs(3), limit, async {
            assert!(wire.read_for(limit).await.1);
        })
        .await;
    };
    let dribbler = async {
        let mut wire = Wire::connect(&mesh).await.unwrap();
        wire.send("POST /outcome/kind-prod HTTP/1.1\r\nX-Long: ").await.unwrap();
        dropped("a header without an end", Duration::from_secs(3), limit, async {
            while wire.send("x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
    };
    let endless = async {
        let mut wire = Wire::connect(&mesh).await.unwrap();
        wire.send(post_head(&mesh, "kind-prod", "Content-Length: 1000\r\n")).await.unwrap();
        wire.send("{").await.unwrap();
        let started = Instant::now();
        let answer = wire.read_until("did not arrive in time", limit).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        assert!(wire.read_for(limit).await.1, "the connection ends with it");
    };
    let after = async {
        let mut wire = Wire::connect(&mesh).await.unwrap();
        wire.send("GET / HTTP/1.1\r\nHost: e\r\n\r\n").await.unwrap();
        wire.read_until("there is nothing here", limit).await;
        dropped("an idle connection after its request", Duration::from_secs(3), limit, async {
            assert!(wire.read_for(limit).await.1);
        })
        .await;
    };
    tokio::join!(silent, stalled, idle, dribbler, endless, after);
    eventually("no connection is left", SHORT, || async {
        let open = mesh.metric("transponder_edge_connections", &[]).await;
        if open == 0.0 { Ok(()) } else { Err(open.to_string()) }
    })
    .await;
}

/// Asserts that something ends not before its time, and soon after it.
async fn dropped(what: &str, deadline: Duration, limit: Duration, end: impl Future<Output = ()>) {
    let started = Instant::now();
    assert!(tokio::time::timeout(limit, end).await.is_ok(), "{what} is still there after {limit:?}");
    let took = started.elapsed();
    assert!(took + Duration::from_millis(200) >= deadline, "{what} was dropped after {took:?}");
    assert!(took < deadline + Duration::from_secs(4), "{what} was dropped only after {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_take_its_answers_is_dropped() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mesh = mesh(&broker, &[("edge.http.idle_timeout", "2s"), ("edge.budget.rate", "100000")]).await;
    let mut wire = Wire::connect(&mesh).await.unwrap();
    let key = "0".repeat(40);
    let request = format!(
        "GET /outcome/kind-prod/{key} HTTP/1.1\r\nHost: e\r\nAuthorization: Bearer {}\r\n\r\n",
        mesh.token("kind-prod")
    );
    // It asks and asks, and reads nothing: at some point nothing more goes in.
    let block = request.repeat(100);
    let stuck = async { while wire.send(&block).await.is_ok() {} };
    let _ = tokio::time::timeout(Duration::from_secs(8), stuck).await;
    eventually("the connection is closed", Duration::from_secs(30), || async {
        let open = mesh.metric("transponder_edge_connections", &[]).await;
        if open == 0.0 { Ok(()) } else { Err(open.to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_is_refused_without_asking_for_the_body() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mesh = mesh(&broker, &[]).await;
    let event = TestEvent::new("Succeeded", "expect").body();
    let expect = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", event.len());
    for _ in 0..10 {
        let mut wire = Wire::connect(&mesh).await.unwrap();
        let head =
            post_head(&mesh, "kind-prod", &expect).replace(mesh.token("kind-prod"), "wrong-wrong-wrong");
        wire.send(head).await.unwrap();
        let answer = wire.read_until("is required", SHORT).await;
        let (more, _) = wire.read_for(Duration::from_millis(300)).await;
        assert!(answer.starts_with("HTTP/1.1 401 ") && !(answer + &more).contains("100 Continue"), "{more}");
    }
    let mut wire = Wire::connect(&mesh).await.unwrap();
    wire.send(post_head(&mesh, "kind-prod", &expect)).await.unwrap();
    let started = Instant::now();
    wire.read_until("HTTP/1.1 100 Continue\r\n\r\n", SHORT).await;
    assert!(started.elapsed() < PROMPT, "{:?}", started.elapsed());
    wire.send(event).await.unwrap();
    assert!(wire.read_until("\"key\"", SHORT).await.contains("HTTP/1.1 202 "));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_about_the_time_of_an_idle_close_are_not_lost() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mesh = mesh(&broker, &[("edge.http.idle_timeout", "500ms")]).await;
    let (mut cut, posts) = (0, 30);
    for number in 0..posts {
        let event = TestEvent::new("Succeeded", &format!("idle-{number}"));
        // A hook tries again when it gets no answer.
        while let Err(error) = mesh.post("kind-prod", event.body()).await {
            cut += 1;
            assert!(cut < 10, "{error}");
        }
        tokio::time::sleep(Duration::from_millis(485 + number)).await;
    }
    println!("{cut} of {posts} requests met the close itself");
    let posts = usize::try_from(posts).unwrap();
    let received = broker.wait_for(posts, LONG).await;
    let keys: std::collections::BTreeSet<_> = received.iter().map(|r| r.header("transponder-key")).collect();
    assert_eq!((received.len(), keys.len()), (posts, posts));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_https_request_is_refused_and_harms_nobody() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let settings = [("edge.http.idle_timeout", "2s"), ("edge.http.body_timeout", "2s")];
    let mut mesh = mesh(&broker, &settings).await;
    let (address, wait) = (mesh.address("edge"), Duration::from_secs(8));

    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"POST /outcome/kind-prod HTTP/1.1\r\nHost: e\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(wait, plain.read_to_end(&mut answer)).await;
    assert!(closed.is_ok() && !String::from_utf8_lossy(&answer).contains("HTTP/1.1 2"));

    let ca = mesh.path("edge/edge-ca.crt").display().to_string();
    for version in ["1.0", "1.1"] {
        let old = ["--cacert", &ca, "--tls-max", version, &mesh.url("/")];
        let refused = transponder_tests::http(old).await;
        assert!(refused.is_err(), "TLS {version}: {refused:?}");
    }
    let newest = ["--cacert", &ca, "--tls-max", "1.2", &mesh.url("/")];
    assert_eq!(transponder_tests::http(newest).await.unwrap().status, 404, "TLS 1.2 works");

    let good = "GET / HTTP/1.1\r\nHost: e\r\n\r\n";
    let long = format!("GET /{} HTTP/1.1\r\nHost: e\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\nHost: e\r\n{}\r\n", "A: b\r\n".repeat(2000));
    let lengths = post_head(&mesh, "kind-prod", "Content-Length: 5\r\nContent-Length: 6\r\n");
    let smuggled = post_head(&mesh, "kind-prod", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n");
    let negative = post_head(&mesh, "kind-prod", "Content-Length: -1\r\n");
    let chunks = post_head(&mesh, "kind-prod", "Transfer-Encoding: chunked\r\n") + "zz\r\nxx\r\n0\r\n\r\n";
    let garbage: Vec<(&str, Vec<u8>)> = vec![
        ("an HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec()),
        ("garbage", (0u16..2000).map(|n| (n * 7 % 251) as u8).collect()),
        ("garbage after a request", [good.as_bytes(), &[0, 1, 2, 255, 13, 10, 13, 10]].concat()),
        ("a thousand requests at once", good.repeat(1000).into_bytes()),
        ("a path without end", long.into_bytes()),
        ("headers without end", many.into_bytes()),
        ("two lengths", lengths.into_bytes()),
        ("a length and chunks", smuggled.into_bytes()),
        ("a negative length", negative.into_bytes()),
        ("chunks that are none", chunks.into_bytes()),
        ("a bare line feed", b"GET / HTTP/1.1\nHost: e\n\n".to_vec()),
        ("a null in the path", b"GET /\0 HTTP/1.1\r\nHost: e\r\n\r\n".to_vec()),
        ("an unknown version", b"GET / HTTP/7.3\r\nHost: e\r\n\r\n".to_vec()),
        ("an upgrade", b"GET / HTTP/1.1\r\nHost: e\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n".to_vec()),
        ("a tunnel", b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n".to_vec()),
    ];
    for (what, bytes) in garbage {
        let mut wire = Wire::connect(&mesh).await.unwrap();
        let _ = wire.send(bytes).await;
        let (answer, closed) = wire.read_for(wait).await;
        assert!(closed, "{what}: still open, after {answer}");
        let statuses: Vec<&str> =
            answer.split("HTTP/1.").skip(1).filter_map(|rest| rest.split(' ').nth(1)).collect();
        assert!(statuses.iter().all(|status| status.starts_with('4')), "{what}: {statuses:?}");
    }
    assert!(!mesh.process().stderr().contains("panicked"), "{}", mesh.process().stderr());
    assert!(broker.received().is_empty(), "nothing of it is an event");
    honest(&mesh, "after garbage").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_methods_and_paths_make_no_new_metrics() {
    let _alone = alone().await;
    let broker = Broker::start().await;
    let mesh = mesh(&broker, &[]).await;
    let client = reqwest::Client::builder().tls_backend_preconfigured(mesh.client_tls()).no_proxy();
    let client = client.build().unwrap();
    let ask = async |number: usize| {
        let path = format!("{}/marker{number}", ["", "/outcome", "/outcome/kind-prod"][number % 3]);
        let method = reqwest::Method::from_bytes(format!("MARKER{number}").as_bytes()).unwrap();
        for method in [method, reqwest::Method::GET, reqwest::Method::POST, reqwest::Method::TRACE] {
            let request =
                client.request(method, mesh.url(&path)).bearer_auth(format!("marker-{number}-token"));
            assert!(request.send().await.unwrap().status().is_client_error());
        }
    };
    for number in 0..6 {
        ask(number).await;
    }
    let series = async || {
        let text = mesh.metrics().await;
        assert!(!text.to_lowercase().contains("marker"), "{text}");
        text.lines().filter(|line| !line.starts_with('#')).count()
    };
    let before = series().await;
    for number in 6..200 {
        ask(number).await;
    }
    assert_eq!(series().await, before);
}
