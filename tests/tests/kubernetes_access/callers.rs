//! Tasks are known by their ServiceAccount tokens.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use transponder_tests::{
    Apart, Code, LONG, Ran, SHORT, alone, details, eventually,
    kubernetes::{ApiServer, AuditEvent},
};

use crate::{
    ground::{self, HOUR, part},
    token::{self, Signer},
};

const SPAN: &str = "outcome-span";
const ACCOUNT: &str = "system:serviceaccount:team:transponder-outcome-span";

/// The accounts of Tasks: of an app, and of nobody who may call.
const TASKS: &str = "
apiVersion: v1
kind: Namespace
metadata: { name: app-shop-cicd }
---
apiVersion: v1
kind: ServiceAccount
metadata: { name: pipeline-runner, namespace: app-shop-cicd }
---
apiVersion: v1
kind: ServiceAccount
metadata: { name: stranger, namespace: app-shop-cicd }
---
apiVersion: v1
kind: Pod
metadata: { name: task, namespace: app-shop-cicd }
spec:
  serviceAccountName: pipeline-runner
  automountServiceAccountToken: false
  containers: [{ name: step, image: 'registry.example/step:1' }]
";

/// The outcome-span with its own account; what may review tokens is bound to it or not.
async fn span(server: &ApiServer, settings: &[(&str, &str)]) -> Apart {
    ground::apply(server, "outcome-span.yaml").await;
    server.apply(TASKS).await;
    let mut apart = part(server, "transponder-outcome-span", settings).await;
    apart.start(SPAN).await;
    apart
}

/// A call without content: whoever may make it is told which field is missing.
async fn call(apart: &Apart, token: &str) -> (Code, Ran) {
    let call = apart.mesh.grpc(SPAN).token(token).described().with(&["-format-error"]);
    let ran = call.call("OutcomeSpan/Emit", &json!({})).await;
    (ran.grpc_code().unwrap_or_else(|| panic!("no answer: {ran:?}")), ran)
}

async fn code(apart: &Apart, token: &str) -> Code {
    call(apart, token).await.0
}

async fn task_token(server: &ApiServer, account: &str, audience: &str) -> String {
    server.service_account_token("app-shop-cicd", account, Some(audience), HOUR).await
}

/// What the service has asked for, once the audit log has at least so much.
async fn asked(server: &ApiServer, least: usize) -> Vec<AuditEvent> {
    eventually("the audit log has the reviews", SHORT, || {
        let all: Vec<_> = server.audit().into_iter().filter(|event| event.user == ACCOUNT).collect();
        let enough = if all.len() >= least { Ok(all) } else { Err(format!("{} of {least}", all.len())) };
        async { enough }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_known_by_its_token_and_what_cannot_be_right_costs_no_request() {
    use Code::{InvalidArgument as Known, PermissionDenied, Unauthenticated};
    let _alone = alone().await;
    let server = ApiServer::start().await;
    ground::apply(&server, "token-review.yaml").await;
    let apart = span(&server, &[("log.filter", "trace")]).await;
    let good = task_token(&server, "pipeline-runner", "transponder").await;
    let (signer, forger) = (Signer::of(&server), Signer::new());
    let claims = token::claims(&good);
    let spoilt = |key: &str, value: Value| {
        let mut claims = claims.clone();
        claims[key] = value;
        claims
    };
    let now = jiff::Timestamp::now().as_second();

    // One review, however many calls.
    for _ in 0..5 {
        assert_eq!(code(&apart, &good).await, Known);
    }
    assert_eq!(asked(&server, 1).await.len(), 1);

    // Not one for what is wrong by its own words.
    let other = task_token(&server, "pipeline-runner", "somebody-else").await;
    let lasting = signer.sign(&spoilt("exp", Value::Null));
    for (token, said) in [
        (other.as_str(), "another audience"),
        (signer.sign(&spoilt("exp", json!(now - 1))).as_str(), "has expired"),
        (lasting.as_str(), "no expiry"),
        ("opaque-token", "not that of a ServiceAccount"),
        ("e30.e30.e30.e30", "not that of a ServiceAccount"),
    ] {
        let (code, ran) = call(&apart, token).await;
        assert_eq!(code, Unauthenticated, "{said}: {ran:?}");
        assert!(details(&ran).1.contains(said), "{ran:?}");
    }
    assert_eq!(asked(&server, 1).await.len(), 1);

    // One for what the API server refuses, and none when it comes again.
    let forged = forger.sign(&claims);
    let foreign = signer.sign(&spoilt("iss", json!("https://issuer.example")));
    let stranger = task_token(&server, "stranger", "transponder").await;
    for _ in 0..3 {
        assert_eq!(code(&apart, &forged).await, Unauthenticated);
        assert_eq!(code(&apart, &foreign).await, Unauthenticated);
        let (code, ran) = call(&apart, &stranger).await;
        assert_eq!(code, PermissionDenied, "{ran:?}");
        assert!(details(&ran).1.contains("app-shop-cicd/stranger is neither in callers.app_accounts"));
    }
    assert_eq!(asked(&server, 4).await.len(), 4);

    // Many calls at once wait for one review.
    let fresh = signer.sign(&spoilt("jti", json!("another")));
    let mut calls = tokio::task::JoinSet::new();
    let apart = std::sync::Arc::new(apart);
    for _ in 0..8 {
        let (apart, fresh) = (apart.clone(), fresh.clone());
        calls.spawn(async move { code(&apart, &fresh).await });
    }
    let codes = calls.join_all().await;
    let mut apart = std::sync::Arc::into_inner(apart).unwrap();
    assert!(codes.iter().all(|code| *code == Known), "{codes:?}");
    let all = asked(&server, 5).await;
    let reviews = |e: &AuditEvent| {
        (&*e.verb, &*e.group, &*e.resource, e.code)
            == ("create", "authentication.k8s.io", "tokenreviews", 201)
    };
    assert!(all.len() == 5 && all.iter().all(reviews), "{all:?}");

    for (result, number) in [("accepted", 2.0), ("refused", 3.0), ("unavailable", 0.0), ("forbidden", 0.0)] {
        let label = format!("result=\"{result}\"");
        assert_eq!(
            apart.metric(SPAN, "transponder_token_reviews_total", &[&label]).await,
            number,
            "{result}"
        );
    }
    let log = apart.process(SPAN).stderr();
    for token in [&good, &forged, &stranger, &fresh] {
        assert!(!log.contains(token.split('.').nth(1).unwrap()), "a token stands in the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_and_that_of_a_deleted_pod_are_refused_in_time() {
    use Code::{InvalidArgument as Known, Unauthenticated};
    let _alone = alone().await;
    let server = ApiServer::start().await;
    ground::apply(&server, "token-review.yaml").await;
    let apart = span(&server, &[("callers.cache", "2s")]).await;
    let bind = ["--audience=transponder", "--bound-object-kind=Pod", "--bound-object-name=task"];
    let create = ["create", "token", "pipeline-runner", "-n", "app-shop-cicd"];
    let bound = server.kubectl(create.iter().chain(&bind)).await.success().text().trim().to_owned();
    assert_eq!(code(&apart, &bound).await, Known);

    let mut claims = token::claims(&bound);
    let end = jiff::Timestamp::now().as_second() + 3;
    claims["exp"] = json!(end);
    let short = Signer::of(&server).sign(&claims);
    assert_eq!(code(&apart, &short).await, Known);
    let left = end - jiff::Timestamp::now().as_second();
    tokio::time::sleep(Duration::from_secs(u64::try_from(left).unwrap_or_default())).await;
    let (code_of_expired, ran) = call(&apart, &short).await;
    assert_eq!(code_of_expired, Unauthenticated, "{ran:?}");

    let delete = ["delete", "pod", "task", "-n", "app-shop-cicd", "--grace-period=0", "--force"];
    server.kubectl(delete).await.success();
    // The API server itself remembers for ten seconds that the token was good.
    eventually("the token of a deleted pod is refused", Duration::from_secs(10 + 2 + 5), || async {
        let code = code(&apart, &bound).await;
        if code == Unauthenticated { Ok(()) } else { Err(format!("{code:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_with_a_review_is_never_the_tokens() {
    use Code::{InvalidArgument as Known, Unauthenticated, Unavailable};
    let _alone = alone().await;
    let mut server = ApiServer::start().await;
    let mut apart = span(&server, &[("kubernetes.request_timeout", "1s")]).await;
    let signer = Signer::of(&server);
    let good = task_token(&server, "pipeline-runner", "transponder").await;
    let claims = token::claims(&good);
    let another = |number: u32| {
        let mut claims = claims.clone();
        claims["jti"] = json!(number.to_string());
        signer.sign(&claims)
    };

    // We may not review yet.
    let (code_of_good, ran) = call(&apart, &good).await;
    assert_eq!(code_of_good, Unavailable, "{ran:?}");
    assert!(ran.stderr.contains("RetryInfo"), "{ran:?}");
    // What only the log may say.
    assert_eq!(details(&ran).1, "the token cannot be reviewed now");
    assert!(apart.process(SPAN).said("transponder manifests rbac") == 1);
    assert_eq!(apart.metric(SPAN, "transponder_token_reviews_total", &["result=\"forbidden\""]).await, 1.0);
    ground::apply(&server, "token-review.yaml").await;
    eventually("the token is known", SHORT, || async {
        let code = code(&apart, &good).await;
        if code == Known { Ok(()) } else { Err(format!("{code:?}")) }
    })
    .await;

    // The API server says nothing, then is gone.
    server.process().signal(Signal::STOP);
    assert_eq!(code(&apart, &another(1)).await, Unavailable);
    assert_eq!(code(&apart, &good).await, Known);
    server.process().signal(Signal::CONT);
    eventually("a token is reviewed again", LONG, || async {
        let code = code(&apart, &another(1)).await;
        if code == Known { Ok(()) } else { Err(format!("{code:?}")) }
    })
    .await;
    server.kill_apiserver();
    for number in 2..5 {
        assert_eq!(code(&apart, &another(number)).await, Unavailable);
        assert_eq!(code(&apart, &good).await, Known);
        assert_eq!(code(&apart, "opaque").await, Unauthenticated);
    }
    assert!(apart.process(SPAN).said("reviewing tokens fails") >= 1);
    server.start_apiserver().await;
    assert_eq!(code(&apart, &another(2)).await, Known);
}
