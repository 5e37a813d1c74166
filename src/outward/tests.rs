//! The client against real servers on loopback: TLS in all its failures, limits, and Secrets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri, header};
use axum::response::IntoResponse;
use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, Method};
use mockall::predicate::eq;
use serde_json::{Value, json};
use url::Url;
use windlass_harness::tls::{Authority, Identity, TlsOptions, TlsServer};
use windlass_kube_port::{Cluster, ClusterError, Kind, MockCluster};

use super::access::Pem;
use super::*;

fn pem(text: &str, source: &str) -> Pem {
    Pem { source: source.to_owned(), bytes: text.as_bytes().to_vec() }
}

fn trusting(authority: &Authority) -> Trust {
    Trust { ca: Some(pem(&authority.pem(), "Secret shop/ca (http.tls.caSecret)")), ..Trust::default() }
}

fn presenting(client: &Identity, trust: Trust) -> Trust {
    let source = "Secret shop/cert (http.tls.clientCertSecret)";
    Trust { client: Some((pem(&client.certificate, source), pem(&client.key, source))), ..trust }
}

fn request(url: &str, trust: Trust) -> Request {
    Request {
        method: Method::GET,
        url: Url::parse(url).unwrap(),
        headers: HeaderMap::new(),
        body: Bytes::new(),
        timeout: Duration::from_secs(20),
        trust,
    }
}

async fn send(url: &str, trust: Trust) -> Result<Reply, String> {
    HttpClient::new(KeptConnections::None).send(request(url, trust)).await
}

async fn server(identity: &Identity) -> TlsServer {
    TlsServer::start(identity, TlsOptions::default(), |_| (200, "there".to_owned())).await
}

/// Why a request to a server with this certificate gets no answer.
async fn refusal(identity: &Identity, trust: Trust) -> String {
    let server = server(identity).await;
    let said = send(&server.url(), trust).await.unwrap_err();
    assert!(server.received().is_empty(), "nothing is sent to a server that is not verified");
    said
}

#[tokio::test]
async fn server_with_a_trusted_certificate_answers() {
    let authority = Authority::new();
    for names in [&["127.0.0.1"][..], &["db.shop.svc", "127.0.0.1"]] {
        let server = server(&authority.server(names)).await;
        let reply = send(&server.url(), trusting(&authority)).await.unwrap();
        assert_eq!((reply.status, reply.body.as_slice()), (200, &b"there"[..]));
    }
}

#[tokio::test]
async fn certificate_that_does_not_verify_is_named_with_its_remedy() {
    let (authority, other) = (Authority::new(), Authority::new());
    let named = |name: &str, trust: Trust| Trust { server_name: name.to_owned(), ..trust };
    let good = authority.server(&["127.0.0.1"]);
    let table = [
        (&good, trusting(&other), "no authority in Secret shop/ca (http.tls.caSecret) has signed it"),
        (
            &good,
            trusting(&Authority::named("another")),
            "no authority in Secret shop/ca (http.tls.caSecret) has signed it",
        ),
        (
            &good,
            Trust::default(),
            "no authority that this system trusts has signed it; set http.tls.caSecret",
        ),
        (
            &good,
            Trust::of(Origin::Prometheus),
            "no authority that this system trusts has signed it; set --prometheus-ca-file",
        ),
        (
            &authority.expired(&["127.0.0.1"]),
            trusting(&authority),
            "it expired at 2021-01-02T00:00:00Z; renew it",
        ),
        (
            &authority.early(&["127.0.0.1"]),
            trusting(&authority),
            "it is not valid before 2999-01-02T00:00:00Z; check the clocks",
        ),
        (
            &authority.server(&["db.shop.svc", "10.0.0.7"]),
            trusting(&authority),
            "it is for db.shop.svc, 10.0.0.7, not for 127.0.0.1; set http.tls.serverName to a name in the certificate",
        ),
        (&good, named("db.shop.svc", trusting(&authority)), "it is for 127.0.0.1, not for db.shop.svc"),
        (&authority.server(&[]), trusting(&authority), "it has no names, so it is not for 127.0.0.1"),
        (&authority.itself(), trusting(&authority), "it is the certificate of an authority"),
        (&authority.client(), named("db", trusting(&authority)), "not for"),
    ];
    for (identity, trust, part) in table {
        let said = refusal(identity, trust).await;
        assert!(said.starts_with("has a certificate that does not verify: "), "{said}");
        assert!(said.contains(part), "{said} does not contain {part}");
        assert!(said.len() < 300, "{said}");
    }
}

#[tokio::test]
async fn server_name_is_verified_in_place_of_the_host_and_sent_to_the_server() {
    let authority = Authority::new();
    let server = server(&authority.server(&["db.shop.svc"])).await;
    let trust = Trust { server_name: "db.shop.svc".to_owned(), ..trusting(&authority) };
    assert_eq!(send(&server.url(), trust).await.unwrap().status, 200);
    let received = &server.received()[0];
    assert_eq!(received.server_name.as_deref(), Some("db.shop.svc"));
    assert_eq!(
        received.headers["host"],
        server.address.to_string(),
        "the request goes to the host of the URL"
    );
}

#[tokio::test]
async fn client_certificate_is_presented_only_if_it_is_set() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = server(&authority.server(&["127.0.0.1"])).await;
    assert!(send(&server.url(), trusting(&authority)).await.is_ok());
    server.renew(
        &authority.server(&["127.0.0.1"]),
        TlsOptions { clients: Some(&clients), ..TlsOptions::default() },
    );
    let trust = presenting(&clients.client(), trusting(&authority));
    assert_eq!(send(&server.url(), trust).await.unwrap().status, 200);
    let presented: Vec<bool> = server.received().iter().map(|received| received.has_certificate).collect();
    assert_eq!(presented, [false, true]);
}

/// In TLS 1.3 the server rejects a client after the handshake, when the request may already be under way.
#[tokio::test]
async fn rejected_client_certificate_is_named() {
    let (authority, clients, other) = (Authority::new(), Authority::new(), Authority::new());
    for is_old in [false, true] {
        let options = TlsOptions { clients: Some(&clients), is_old };
        let server =
            TlsServer::start(&authority.server(&["127.0.0.1"]), options, |_| (200, String::new())).await;
        for _ in 0..20 {
            let said = send(&server.url(), trusting(&authority)).await.unwrap_err();
            assert!(
                said.contains("client certificate") && said.contains("http.tls.clientCertSecret"),
                "{said}"
            );
            let trust = presenting(&other.client(), trusting(&authority));
            let said = send(&server.url(), trust).await.unwrap_err();
            assert!(said.contains("client certificate in Secret shop/cert"), "{said}");
        }
        assert!(server.received().is_empty());
    }
}

#[tokio::test]
async fn server_without_tls_is_named() {
    let (url, _) = peer().await;
    let mut url = url;
    url.set_scheme("https").unwrap();
    let said = send(url.as_str(), Trust::default()).await.unwrap_err();
    assert!(said.contains("does not speak TLS on this port"), "{said}");
}

#[tokio::test]
async fn invalid_certificates_are_named_before_anything_is_sent() {
    let authority = Authority::new();
    let (one, two) = (authority.client(), authority.client());
    let server = server(&authority.server(&["127.0.0.1"])).await;
    let mixed = Identity { key: two.key.clone(), ..one.clone() };
    let no_key = Identity { key: one.certificate.clone(), ..one.clone() };
    let table = [
        (
            Trust { ca: Some(pem("nothing", "Secret shop/ca")), ..Trust::default() },
            "Secret shop/ca has no valid certificate in PEM",
        ),
        (presenting(&no_key, Trust::default()), "has no valid private key in PEM"),
        (presenting(&mixed, Trust::default()), "a certificate and a key that cannot be used together"),
        (
            Trust { server_name: "a b".to_owned(), ..Trust::default() },
            "http.tls.serverName \"a b\" is not a DNS name or an IP address",
        ),
    ];
    for (trust, part) in table {
        let said = send(&server.url(), trust).await.unwrap_err();
        assert!(said.starts_with("cannot be sent: ") && said.contains(part), "{said}");
        assert!(!said.contains("BEGIN"), "{said}");
    }
}

#[tokio::test]
async fn changed_certificates_get_connections_of_their_own() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = server(&authority.server(&["127.0.0.1"])).await;
    let client = HttpClient::new(KeptConnections::OnePerHost);
    for _ in 0..3 {
        assert!(client.send(request(&server.url(), trusting(&authority))).await.is_ok());
        assert!(client.send(request(&server.url(), trusting(&other))).await.is_err());
    }
}

/// A server on loopback without TLS, and how often the target of its redirect was requested.
async fn peer() -> (Url, Arc<AtomicUsize>) {
    let elsewhere = Arc::<AtomicUsize>::default();
    let count = elsewhere.clone();
    let answer = move |uri: Uri| async move {
        if uri.path() == "/elsewhere" {
            count.fetch_add(1, Ordering::SeqCst);
        }
        match uri.path().trim_start_matches('/').parse::<usize>() {
            Ok(bytes) => "x".repeat(bytes).into_response(),
            Err(_) => (StatusCode::FOUND, [(header::LOCATION, "/elsewhere")], "there").into_response(),
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    (url, elsewhere)
}

async fn answer(url: Url) -> Reply {
    send(url.as_str(), Trust::default()).await.unwrap()
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let (url, elsewhere) = peer().await;
    let reply = answer(url.join("moved").unwrap()).await;
    assert_eq!((reply.status, reply.body.as_slice()), (302, &b"there"[..]));
    assert_eq!(elsewhere.load(Ordering::SeqCst), 0);
}

/// Proxy variables apply to a process: the test above runs again in another one.
#[tokio::test]
async fn client_ignores_proxy_variables() {
    let (own, dead) = (std::env::current_exe().unwrap(), "http://127.0.0.1:9");
    let mut command = tokio::process::Command::new(own);
    command.args(["--exact", "outward::tests::no_redirect_is_followed"]);
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, dead);
    }
    let ran = command.env_remove("NO_PROXY").env_remove("no_proxy").output().await.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

#[tokio::test]
async fn response_body_is_read_up_to_64_kib() {
    let (url, _) = peer().await;
    for (bytes, read, is_cut) in
        [(0, 0, false), (65_536, 65_536, false), (65_537, 65_536, true), (9 << 20, 65_536, true)]
    {
        let reply = answer(url.join(&bytes.to_string()).unwrap()).await;
        assert_eq!((reply.status, reply.body.len(), reply.is_cut), (200, read, is_cut), "{bytes}");
    }
}

/// A Secret with these keys.
fn secret(pairs: &[(&str, &str)]) -> Value {
    let encode = |value: &str| base64::engine::general_purpose::STANDARD.encode(value);
    let data: Value = pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(encode(value)))).collect();
    json!({"data": data})
}

fn settings(tls: Value, auth: Value) -> OutwardSettings {
    let (tls, auth) = (serde_json::from_value(tls).unwrap(), serde_json::from_value(auth).unwrap());
    OutwardSettings { origin: Origin::Hook, tls, auth }
}

/// A reader of one Secret, whatever its name.
fn reading(answer: Result<Option<Value>, ClusterError>, keep: Duration) -> Secrets {
    let mut cluster = MockCluster::new();
    cluster.expect_get().returning(move |_, _, _| answer.clone());
    Secrets::new(Arc::new(cluster), keep)
}

#[tokio::test(start_paused = true)]
async fn access_has_what_the_secrets_contain() {
    let found = secret(&[
        ("ca.crt", "ca"),
        ("tls.crt", "certificate"),
        ("tls.key", "key"),
        ("token", "sesame\n"),
        ("username", "ann"),
        ("password", "pa:ss\n"),
    ]);
    let secrets = reading(Ok(Some(found)), Duration::ZERO);
    let tls = json!({"caSecret": "a", "clientCertSecret": "b", "serverName": "db"});
    let access = secrets.access("shop", &settings(tls, json!({"bearerSecret": "c"}))).await.unwrap();
    assert_eq!(access.headers["authorization"], "Bearer sesame");
    assert_eq!(access.trust.ca, Some(pem("ca", "Secret shop/a (http.tls.caSecret)")));
    let cert = |text| pem(text, "Secret shop/b (http.tls.clientCertSecret)");
    assert_eq!(access.trust.client, Some((cert("certificate"), cert("key"))));
    assert_eq!(access.trust.server_name, "db");
    let access = secrets.access("shop", &settings(json!({}), json!({"basicSecret": "c"}))).await.unwrap();
    assert_eq!(access.headers["authorization"], "Basic YW5uOnBhOnNz");
    assert_eq!(access.trust, Trust::default());
}

#[tokio::test(start_paused = true)]
async fn missing_secret_key_or_right_is_named_with_its_field() {
    let ca = settings(json!({"caSecret": "ca"}), json!({}));
    let basic = settings(json!({}), json!({"basicSecret": "ann"}));
    let forbidden = ClusterError::Forbidden { object: "Secret shop/ca".to_owned(), message: "no".to_owned() };
    let table = [
        (Ok(None), &ca, "Secret shop/ca (http.tls.caSecret) does not exist: create it with the key ca.crt"),
        (Ok(Some(secret(&[]))), &ca, "Secret shop/ca (http.tls.caSecret) has no key ca.crt: add it"),
        (Ok(Some(json!({"data": null}))), &ca, "has no key ca.crt"),
        (
            Ok(Some(secret(&[("username", "ann")]))),
            &basic,
            "Secret shop/ann (http.auth.basicSecret) has no key password: add it",
        ),
        (
            Err(forbidden),
            &ca,
            "the operator may not read Secret shop/ca (http.tls.caSecret): grant its role the verb get on \
             secrets, as in deploy/rbac",
        ),
    ];
    for (answer, settings, part) in table {
        let said = reading(answer, Duration::ZERO).access("shop", settings).await.unwrap_err();
        assert!(said.starts_with("cannot be sent: ") && said.contains(part), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_requests_share_one_read_of_a_secret_until_it_is_too_old() {
    let mut cluster = MockCluster::new();
    let reads = Arc::<AtomicUsize>::default();
    let count = reads.clone();
    cluster.expect_get().with(eq(Kind::Secret), eq("shop"), eq("token")).returning(move |_, _, _| {
        let token = format!("token-{}", count.fetch_add(1, Ordering::SeqCst));
        Ok(Some(secret(&[("token", &token)])))
    });
    let cluster: Arc<dyn Cluster> = Arc::new(cluster);
    let secrets = Secrets::new(cluster.clone(), Duration::from_secs(5));
    let settings = settings(json!({}), json!({"bearerSecret": "token"}));
    let ask = async || secrets.access("shop", &settings).await.unwrap().headers["authorization"].clone();
    for _ in 0..1000 {
        assert_eq!(ask().await, "Bearer token-0");
    }
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(ask().await, "Bearer token-1");
    // Hooks read their Secrets for each request.
    let secrets = Secrets::new(cluster, Duration::ZERO);
    for read in 2..5 {
        let access = secrets.access("shop", &settings).await.unwrap();
        assert_eq!(access.headers["authorization"], format!("Bearer token-{read}"));
    }
    assert_eq!(reads.load(Ordering::SeqCst), 5);
}

/// A folder that is deleted on drop.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("windlass-outward-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn rotated_files_are_used_by_the_next_request() {
    let (first, second) = (Authority::new(), Authority::new());
    let folder = Folder::new("rotated");
    let (ca, token) = (folder.write("ca.crt", &first.pem()), folder.write("token", "one\n"));
    let server = server(&first.server(&["127.0.0.1"])).await;
    let headers = ["X-Scope-OrgID=shop".to_owned()];
    let files = FileAccess::new(Origin::Prometheus, &server.url(), Some(ca), Some(token), &headers).unwrap();
    let client = HttpClient::new(KeptConnections::None);
    let ask = async || {
        let Access { trust, headers } = files.access().await?;
        client.send(Request { headers, ..request(&server.url(), trust) }).await
    };
    ask().await.unwrap();
    server.renew(&second.server(&["127.0.0.1"]), TlsOptions::default());
    let said = ask().await.unwrap_err();
    assert!(
        said.contains("no authority in --prometheus-ca-file ") && said.contains("has signed it"),
        "{said}"
    );
    folder.write("ca.crt", &second.pem());
    folder.write("token", "two");
    ask().await.unwrap();
    let received = server.received();
    let sent: Vec<_> = received
        .iter()
        .map(|r| (r.headers["authorization"].as_str(), r.headers["x-scope-orgid"].as_str()))
        .collect();
    assert_eq!(sent, [("Bearer one", "shop"), ("Bearer two", "shop")]);
}

#[test]
fn unusable_flags_are_refused_at_the_start() {
    let folder = Folder::new("flags");
    let authority = Authority::new();
    let (ca, no_ca) = (folder.write("ca.crt", &authority.pem()), folder.write("no.crt", "nothing"));
    let (token, empty) = (folder.write("token", "sesame"), folder.write("empty", "\n"));
    let of = |url, ca: Option<&std::path::PathBuf>, token: Option<&std::path::PathBuf>, headers: &[&str]| {
        let headers: Vec<String> = headers.iter().map(ToString::to_string).collect();
        FileAccess::new(Origin::Prometheus, url, ca.cloned(), token.cloned(), &headers)
    };
    let (http, https) = ("http://p:9090", "https://p:9090");
    assert!(of(https, Some(&ca), Some(&token), &["X-Scope-OrgID=a=b"]).is_ok());
    assert!(of(http, None, Some(&token), &[]).is_ok());
    assert!(of(http, None, None, &["Authorization=Basic YTpi"]).is_ok());
    let missing = folder.0.join("missing");
    let table = [
        (
            of(http, Some(&ca), None, &[]),
            "--prometheus-ca-file needs a --prometheus-url that begins with https://",
        ),
        (of(https, Some(&missing), None, &[]), "missing cannot be read"),
        (of(https, Some(&no_ca), None, &[]), "no.crt has no valid certificate in PEM"),
        (of(https, None, Some(&empty), &[]), "empty has no token"),
        (of(https, None, Some(&token), &["authorization=hidden"]), "--prometheus-token-file sets the header"),
        (of(https, None, None, &["hidden"]), "NAME=VALUE"),
        (of(https, None, None, &["a b=hidden"]), "NAME=VALUE"),
        (of(https, None, None, &["a=hid\nden"]), "NAME=VALUE"),
    ];
    for (refused, part) in table {
        let said = refused.unwrap_err();
        assert!(said.contains(part) && !said.contains("hid") && !said.contains("cannot be sent"), "{said}");
    }
    let shown = format!("{:?}", of(https, Some(&ca), Some(&token), &["X-Api-Key=hidden"]).unwrap());
    assert!(shown.contains("x-api-key") && !shown.contains("hidden"), "{shown}");
}
