//! Secrets of hooks: an HTTPS hook with a client certificate and a token, with Secrets that are rotated while the rollout waits.

use serde_json::{Value, json};

use crate::rbac::rules::{Rule, used};
use windlass_harness::controlplane::Options;
use windlass_harness::operated::{Reach, World, fleet, image, is_applied};
use windlass_harness::tls::{Authority, Identity, TlsOptions, TlsServer};

fn drain(url: &str) -> Value {
    let http = json!({
        "url": format!("{url}/drain"), "method": "POST", "intervalSeconds": 1,
        "tls": {"caSecret": "ca", "clientCertSecret": "cert", "serverName": "drainer.shop.svc"},
        "auth": {"bearerSecret": "token"},
    });
    json!({"spec": {"updateStrategy": {"hooks": [{"name": "drain", "at": "BeforeNode", "http": http}]}}})
}

fn certificate(identity: &Identity) -> Value {
    json!({"stringData": {"tls.crt": identity.certificate, "tls.key": identity.key}})
}

/// Waits until the fleet's status says this.
async fn until_said(world: &World, part: &str) {
    let says = |db: &Value| db["status"]["rollout"].to_string().contains(part);
    world.until(world.fleets(), "db", &format!("it says {part:?}"), says).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn https_hook_uses_rotated_secrets_and_names_what_is_wrong() {
    let (authority, clients, other) = (Authority::new(), Authority::new(), Authority::named("another"));
    let names = ["drainer.shop.svc"];
    let options = TlsOptions { clients: Some(&clients), ..TlsOptions::default() };
    let server = TlsServer::start(&authority.server(&names), options, |received| {
        match received.headers.get("authorization").map(String::as_str) {
            Some("Bearer rotated-sesame") => (200, "drained".to_owned()),
            _ => (401, "who are you?".to_owned()),
        }
    })
    .await;
    let mut world = World::without_operator(Reach::OneNamespace, Options::default()).await;
    world.start_operator_with(&["--hook-host", "127.0.0.1"]).await;
    let (fleets, secrets) = (world.fleets(), world.api("v1", "Secret"));
    world.fleet(fleet("db", 1, "db:1", &json!(1))).await;
    world.until_applied("db").await;
    for (name, data) in [
        ("ca", json!({"ca.crt": other.pem()})),
        ("cert", certificate(&other.client())["stringData"].clone()),
        ("token", json!({"token": "first-sesame"})),
    ] {
        let secret = json!({"metadata": {"name": name}, "stringData": data});
        world.create("v1", "Secret", secret).await;
    }
    world.patch(&fleets, "db", drain(&server.url())).await;
    let mark = world.cp.audit_mark().await;
    world.patch(&fleets, "db", image("db:2")).await;

    // Each message names what is missing or wrong, until it is corrected.
    until_said(&world, "has a certificate that does not verify: no authority in Secret").await;
    world.patch(&secrets, "ca", json!({"stringData": {"ca.crt": authority.pem()}})).await;
    until_said(&world, "client certificate in Secret").await;
    world.patch(&secrets, "cert", certificate(&clients.client())).await;
    until_said(&world, "answered 401: who are you?").await;
    server.renew(&authority.expired(&names), options);
    until_said(&world, "it expired at 2021-01-02T00:00:00Z").await;
    server.renew(&authority.server(&names), options);
    let node = world.get(&world.api("windlass.dev/v1alpha1", "StatefulNode"), "db-0").await;
    assert_eq!(node["status"]["currentImage"], "db:1", "nothing goes before it is drained");
    world.patch(&secrets, "token", json!({"stringData": {"token": "rotated-sesame\n"}})).await;
    world.until(world.fleets(), "db", "it is complete", is_applied).await;

    let received = server.received();
    assert!(received.iter().all(|r| r.has_certificate && r.request == "POST /drain"), "{received:?}");
    assert_eq!(received[0].headers["authorization"], "Bearer first-sesame");
    // The credentials are nowhere to be seen.
    for kind in ["nodedeployments", "statefulnodes", "events.events.k8s.io", "statefulsets"] {
        let shown = world.cp.kubectl(&["-n", &world.ns, "get", kind, "-o", "json"]).await.ok();
        assert!(shown.contains("drainer.shop.svc") || kind != "nodedeployments", "{shown}");
        assert!(!shown.contains("sesame") && !shown.contains("PRIVATE KEY"), "{kind}: {shown}");
    }
    // Secrets are read by name. There is neither a list nor a watch of them.
    let used = used(&world.operator_audit(mark).await);
    let of_secrets: Vec<&Rule> = used.iter().filter(|rule| rule.resource == "secrets").collect();
    assert_eq!(of_secrets.iter().map(|rule| rule.verb.as_str()).collect::<Vec<_>>(), ["get"]);
}
