//! The client of hooks: a port, and its implementation over HTTP.

use std::sync::Arc;

use async_trait::async_trait;

use crate::outward::{HttpClient, Reply as HookReply, Request as HookRequest};

/// An HTTP client for hooks.
#[async_trait]
pub trait HookClient: Send + Sync {
    /// Sends a request and reads the response, whatever its status. An error is the end of a sentence: "did not
    /// answer in time".
    async fn send(&self, request: HookRequest) -> Result<HookReply, String>;
}

#[async_trait]
impl HookClient for HttpClient {
    async fn send(&self, request: HookRequest) -> Result<HookReply, String> {
        Self::send(self, request).await
    }
}

/// A client that sends nothing while this replica does not lead: another replica asks the same peers.
pub struct WhileLeading {
    client: Arc<dyn HookClient>,
    leads: Box<dyn Fn() -> bool + Send + Sync>,
}

impl WhileLeading {
    /// Wraps a client. `leads` returns whether this replica leads.
    pub fn new(client: Arc<dyn HookClient>, leads: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { client, leads: Box::new(leads) }
    }
}

#[async_trait]
impl HookClient for WhileLeading {
    async fn send(&self, request: HookRequest) -> Result<HookReply, String> {
        if !(self.leads)() {
            return Err("was not sent: this replica is no longer the leader".to_owned());
        }
        self.client.send(request).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;
    use crate::outward::Trust;

    /// Counts the requests.
    #[derive(Default)]
    struct Counting(Mutex<usize>);

    #[async_trait]
    impl HookClient for Counting {
        async fn send(&self, _: HookRequest) -> Result<HookReply, String> {
            *self.0.lock().unwrap() += 1;
            Ok(HookReply::default())
        }
    }

    #[tokio::test]
    async fn former_leader_sends_no_requests() {
        let (client, leads) = (Arc::new(Counting::default()), Arc::new(Mutex::new(true)));
        let may_ask = leads.clone();
        let client_of_leader = WhileLeading::new(client.clone(), move || *may_ask.lock().unwrap());
        let request = || HookRequest {
            method: http::Method::GET,
            url: url::Url::parse("http://peer/").unwrap(),
            headers: http::HeaderMap::new(),
            body: bytes::Bytes::new(),
            timeout: Duration::from_secs(1),
            trust: Trust::default(),
        };
        assert!(client_of_leader.send(request()).await.is_ok());
        *leads.lock().unwrap() = false;
        let why = client_of_leader.send(request()).await.unwrap_err();
        assert!(why.contains("no longer the leader"), "{why}");
        assert_eq!(*client.0.lock().unwrap(), 1);
    }
}
