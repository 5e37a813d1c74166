//! TLS, certificates and API keys, with a real server behind ports that require them.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass_clock::monotonic;
use windlass_temporal::{
    api::{ApiKeySecret, Connection, Tls},
    port::{Connections, DeploymentName, Missing, TemporalError},
};
use windlass_temporal_grpc::GrpcConnections;

use crate::stage::PlayedSecrets;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::Cluster;
use windlass_harness::temporal::farm::{Farm, PATIENCE, version};
use windlass_harness::temporal::frontend::{API_KEY, Options, SERVER_NAME, Server};

/// The server's error for an unknown deployment, which shows that the credentials were accepted.
async fn asked(secrets: &PlayedSecrets, connection: &Connection) -> TemporalError {
    let connections = GrpcConnections::new(Arc::new(secrets.clone()));
    let port = match connections.connect("shop", connection).await {
        Ok(port) => port,
        Err(error) => return error,
    };
    port.describe_deployment(&DeploymentName::new("shop/none")).await.expect_err("no such deployment")
}

fn is_let_in(error: &TemporalError) -> bool {
    matches!(error, TemporalError::NotFound { what: Missing::Deployment, .. })
}

fn connection(address: &str, tls: Tls) -> Connection {
    Connection {
        address: address.to_owned(),
        namespace: "default".to_owned(),
        tls: Some(tls),
        ..Connection::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_credentials_connect_and_each_fault_has_its_own_error() {
    let server = Server::start(Options { guarded: true, ..Options::default() }).await.expect("a server");
    let secrets = PlayedSecrets::default();
    secrets.put("ca", &[("ca.crt", &server.pem("ca.crt"))]);
    secrets.put("cert", &[("tls.crt", &server.pem("client.crt")), ("tls.key", &server.pem("client.key"))]);
    // An authority that signed nothing here.
    secrets.put("other-ca", &[("ca.crt", &server.pem("client.crt"))]);
    secrets.put("key", &[("api-key", API_KEY)]);
    secrets.put("wrong-key", &[("api-key", "close-sesame")]);
    let named = |name: &str| Some(name.to_owned());
    let tls = Tls { ca_secret: named("ca"), cert_secret: None, server_name: named(SERVER_NAME) };

    // With a certificate.
    let by_certificate = |tls: &Tls| connection(server.by_certificate(), tls.clone());
    let with_cert = Tls { cert_secret: named("cert"), ..tls.clone() };
    let answer = asked(&secrets, &by_certificate(&with_cert)).await;
    assert!(is_let_in(&answer), "{answer:?}");
    let answer = asked(&secrets, &by_certificate(&tls)).await;
    assert!(matches!(answer, TemporalError::CredentialsInvalid { .. }), "no certificate: {answer:?}");
    let answer =
        asked(&secrets, &by_certificate(&Tls { ca_secret: named("other-ca"), ..with_cert.clone() })).await;
    assert!(matches!(answer, TemporalError::Unreachable { .. }), "the server's is not trusted: {answer:?}");
    let answer = asked(&secrets, &by_certificate(&Tls { server_name: None, ..with_cert.clone() })).await;
    assert!(matches!(answer, TemporalError::Unreachable { .. }), "it is for another name: {answer:?}");
    let answer = asked(&secrets, &by_certificate(&Tls { cert_secret: named("gone"), ..with_cert })).await;
    assert!(matches!(answer, TemporalError::SecretNotFound { .. }), "{answer:?}");

    // With an API key.
    let by_key = |name: &str| Connection {
        api_key_secret: Some(ApiKeySecret { name: name.to_owned(), key: "api-key".to_owned() }),
        ..connection(server.by_key(), tls.clone())
    };
    let answer = asked(&secrets, &by_key("key")).await;
    assert!(is_let_in(&answer), "{answer:?}");
    let answer = asked(&secrets, &by_key("wrong-key")).await;
    assert!(matches!(answer, TemporalError::CredentialsInvalid { .. }), "{answer:?}");
    let answer = asked(&secrets, &connection(server.by_key(), tls.clone())).await;
    assert!(matches!(answer, TemporalError::CredentialsInvalid { .. }), "no key: {answer:?}");

    // Plain text to a TLS port, and the reverse.
    let plain = Connection { tls: None, ..connection(server.by_certificate(), tls.clone()) };
    let answer = asked(&secrets, &plain).await;
    assert!(matches!(answer, TemporalError::Unreachable { .. }), "{answer:?}");
    let answer = asked(&secrets, &connection(&server.address(), tls)).await;
    assert!(matches!(answer, TemporalError::Unreachable { .. }), "{answer:?}");

    // A missing namespace differs from a missing deployment.
    let elsewhere =
        Connection { address: server.address(), namespace: "no-such".to_owned(), ..Connection::default() };
    let answer = asked(&secrets, &elsewhere).await;
    assert!(matches!(answer, TemporalError::NotFound { what: Missing::Namespace, .. }), "{answer:?}");
}

/// The pods of all versions, by build ID: the digest of their Secrets, and whether they are ready.
async fn pods(farm: &Farm<'_>) -> Result<Vec<(String, String, bool)>, Error> {
    let list = farm.place.api("v1", "Pod").list(&ListParams::default()).await?;
    let lives = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_null();
    let of = |pod: Value| {
        let meta = &pod["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
        let build = text(&meta["labels"]["windlass.dev/build-id"]);
        (build, text(&meta["annotations"]["windlass.dev/config-digest"]), is_ready)
    };
    Ok(list.items.into_iter().map(|pod| json!(pod)).filter(lives).map(of).collect())
}

pub async fn put_secret(farm: &Farm<'_>, name: &str, data: &Value) -> Result<(), Error> {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    let api = farm.place.api("v1", "Secret");
    api.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rotated_certificate_reaches_every_version_within_max_unavailable() -> Result<(), Error> {
    let server = Server::start(Options { guarded: true, ..Options::default() }).await?;
    let operator = env!("CARGO_BIN_EXE_windlass");
    let farm = Farm::new(Cluster::shared().await, &server, operator, "rotated").await?;
    let mut spec = farm.spec("1");
    spec["replicas"] = json!(3);
    spec["maxSurge"] = json!(0);
    spec["maxUnavailable"] = json!(1);
    spec["connection"] = json!({
        "address": server.by_certificate(), "namespace": "default",
        "tls": {"caSecret": "ca", "certSecret": "operator", "serverName": SERVER_NAME},
        "workers": {"tls": {"caSecret": "ca", "certSecret": "workers"}},
    });
    let certificate = json!({"tls.crt": server.pem("client.crt"), "tls.key": server.pem("client.key")});
    put_secret(&farm, "ca", &json!({"ca.crt": server.pem("ca.crt")})).await?;
    put_secret(&farm, "operator", &certificate).await?;
    farm.create(spec).await?;

    // The workers' own does not exist yet.
    let seen = farm.until_reason("UpToDate", "ConnectionSecretNotFound").await?;
    let said = format!(
        "Secret {}/workers (connection.workers.tls.certSecret) does not exist: create it",
        farm.place.ns
    );
    assert!(seen["status"].to_string().contains(&said), "{:#}", seen["status"]);
    put_secret(&farm, "workers", &certificate).await?;
    // The port accepts no worker without a certificate.
    let v1 = farm.until_current().await?;
    farm.begin_on(&v1).await?;
    farm.set_image("2").await?;
    let v2 = farm.until_current().await?;
    farm.begin_on(&v2).await?;
    let before = pods(&farm).await?;
    assert_eq!(before.len(), 6, "{before:?}");
    assert!(before.iter().all(|pod| pod.1 == before[0].1 && pod.2), "{before:?}");
    let rollouts = farm.object().await?["status"]["history"].clone();

    let rotated = json!({"stringData": {"tls.crt": format!("{}\n", server.pem("client.crt"))}});
    let secrets = farm.place.api("v1", "Secret");
    secrets.patch("workers", &PatchParams::default(), &Patch::Merge(rotated)).await?;
    let (from, until) = (monotonic(), monotonic() + PATIENCE);
    loop {
        let now = pods(&farm).await?;
        for build in [&v1, &v2] {
            let ready = now.iter().filter(|pod| pod.0 == *build && pod.2).count();
            assert!(ready >= 2, "{ready} of {build}: {now:?}");
            let is_begun = now.iter().any(|pod| pod.0 == *build && pod.1 != before[0].1);
            assert!(is_begun || from.elapsed() < Duration::from_secs(30), "{build} is not updated: {now:?}");
        }
        if now.len() == 6 && now.iter().all(|pod| pod.1 != before[0].1 && pod.1 == now[0].1 && pod.2) {
            break;
        }
        assert!(monotonic() < until, "the rotation does not end: {now:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let seen = farm.object().await?;
    assert_eq!(seen["status"]["history"], rollouts, "it is no rollout");
    let known: Vec<bool> = [&v1, &v2].map(|build| version(&seen, build).is_some()).into();
    assert_eq!((known, farm.deployments().await?.len()), (vec![true, true], 2));
    farm.end_all().await?;
    Ok(())
}
