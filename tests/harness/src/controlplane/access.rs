//! Access to the cluster: clients, kubeconfig files, kubectl.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::io::AsyncWriteExt;

use super::{ControlPlane, Error};

/// The output of kubectl.
#[derive(Clone, Debug)]
pub struct KubectlOutput {
    pub stdout: String,
    pub stderr: String,
    /// `None` if a signal ended it.
    pub code: Option<i32>,
}

impl KubectlOutput {
    /// Its standard output, if it succeeded.
    ///
    /// # Panics If it failed, with its output.
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "kubectl failed: {}{}", self.stdout, self.stderr);
        self.stdout
    }
}

pub(super) async fn client_of(kubeconfig: &Path) -> Result<Client, Error> {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    Ok(Client::try_from(config)?)
}

impl ControlPlane {
    /// The API server's URL, on loopback.
    pub fn server(&self) -> &str {
        &self.message.server
    }

    /// The kubeconfig file of an administrator (user `admin`, of system:masters).
    pub fn kubeconfig(&self) -> &Path {
        &self.message.kubeconfig
    }

    /// The file of the authority that signed the API server's certificate.
    pub fn ca(&self) -> &Path {
        &self.message.ca
    }

    /// A new client of the administrator. A client belongs to the tokio runtime it was made in: each test takes its own.
    pub async fn client(&self) -> Client {
        client_of(self.kubeconfig()).await.expect("an administrator's client")
    }

    /// A client with this bearer token.
    pub async fn client_for_token(&self, token: &str) -> Client {
        let config = self.config_for_token(token, "default").await.expect("a kubeconfig with a token");
        Client::try_from(config).expect("a client with a token")
    }

    async fn config_for_token(&self, token: &str, namespace: &str) -> Result<Config, Error> {
        let config = Kubeconfig::from_yaml(&self.kubeconfig_text(token, namespace))?;
        Ok(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?)
    }

    fn kubeconfig_text(&self, token: &str, namespace: &str) -> String {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "windlass-test",
            "clusters": [{"name": "windlass-test", "cluster": {"server": self.server(), "certificate-authority": self.ca()}}],
            "users": [{"name": "bearer", "user": {"token": token}}],
            "contexts": [{"name": "windlass-test", "context": {"cluster": "windlass-test", "user": "bearer", "namespace": namespace}}],
        })
        .to_string()
    }

    /// A token of the service account, which is created if it does not exist; it lasts a day.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String, Error> {
        let api: Api<ServiceAccount> = Api::namespaced(self.client().await, namespace);
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(name.to_owned());
        match api.create(&PostParams::default(), &account).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
        let spec = TokenRequestSpec { expiration_seconds: Some(86_400), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let granted = api.create_token_request(name, &PostParams::default(), &request).await?;
        Ok(granted
            .status
            .and_then(|status| status.token)
            .ok_or("the token request was answered without a token")?)
    }

    /// A kubeconfig file of the service account, which is created if it does not exist. Its rights are up to RBAC.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf, Error> {
        let token = self.service_account_token(namespace, name).await?;
        let path = self.folder().join(format!("{namespace}-{name}.kubeconfig"));
        std::fs::write(&path, self.kubeconfig_text(&token, namespace))?;
        Ok(path)
    }

    /// Runs kubectl as the administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> KubectlOutput {
        self.kubectl_with(arguments, "").await
    }

    /// Runs kubectl as the administrator, with `input` on its standard input.
    ///
    /// # Panics
    /// If it cannot be run at all.
    pub async fn kubectl_with(&self, arguments: &[&str], input: &str) -> KubectlOutput {
        let mut command = tokio::process::Command::new(self.bin().join("kubectl"));
        command.args(arguments).envs(self.environment()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl can be run");
        let mut stdin = child.stdin.take().expect("kubectl's input is a pipe");
        let feed = async move {
            // kubectl may exit without reading its input.
            let _ = stdin.write_all(input.as_bytes()).await;
        };
        let ((), output) = tokio::join!(feed, child.wait_with_output());
        let output = output.expect("kubectl ends");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        KubectlOutput { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() }
    }

    /// A folder for PATH that contains `kubectl`.
    pub fn bin(&self) -> PathBuf {
        self.folder().join("bin")
    }

    /// The environment for kubectl and other programs that read KUBECONFIG, without files in the home folder.
    pub fn environment(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("KUBECONFIG", self.kubeconfig().to_owned()),
            ("KUBECACHEDIR", self.folder().join("kubectl-cache")),
            ("KUBERC", PathBuf::from("off")),
        ]
    }
}
