//! TLS, certificates and API keys, with a real server behind ports that require them.

use std::sync::Arc;

use windlass_temporal::{
    api::{ApiKeySecret, Connection, Tls},
    port::{Connections, DeploymentName, Missing, TemporalError},
};
use windlass_temporal_grpc::GrpcConnections;

use crate::stage::PlayedSecrets;
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
