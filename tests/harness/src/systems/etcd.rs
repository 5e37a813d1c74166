//! A client of etcd's JSON gateway, for writers and checks.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::systems::writer::Store;

/// The page size of reads.
const PAGE: usize = 1000;

/// A client of one member, which switches to another one after a failure.
#[derive(Clone)]
pub struct Etcd {
    http: reqwest::Client,
    members: Vec<String>,
    at: usize,
}

impl Etcd {
    /// For members at these addresses.
    pub fn new(addresses: impl IntoIterator<Item = String>) -> Self {
        let members = addresses.into_iter().map(|address| format!("http://{address}:2379")).collect();
        Self { http: reqwest::Client::new(), members, at: 0 }
    }

    async fn ask(&self, member: usize, path: &str, body: &Value) -> Result<Value, String> {
        let url = format!("{}{path}", self.members[member]);
        let asked = self.http.post(&url).json(body).timeout(std::time::Duration::from_secs(5));
        let answer = asked.send().await.map_err(|error| format!("{url}: {error}"))?;
        let status = answer.status();
        let said: Value = answer.json().await.map_err(|error| format!("{url}: {error}"))?;
        if status.is_success() { Ok(said) } else { Err(format!("{url}: {status}: {said}")) }
    }

    /// The status of each member; `None` if it does not answer.
    pub async fn members(&self) -> Vec<Option<Member>> {
        let mut all = Vec::new();
        for member in 0..self.members.len() {
            let said = self.ask(member, "/v3/maintenance/status", &json!({})).await.ok();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            all.push(said.map(|said| Member {
                version: text(&said["version"]),
                leads: said["leader"] == said["header"]["member_id"],
                has_leader: said["leader"].as_str().is_some_and(|leader| leader != "0"),
            }));
        }
        all
    }

    /// The names of the members, as one of them lists them.
    pub async fn names(&self) -> Result<BTreeSet<String>, String> {
        let said = self.ask(self.at, "/v3/cluster/member/list", &json!({})).await?;
        let members = said["members"].as_array().into_iter().flatten();
        Ok(members.map(|member| member["name"].as_str().unwrap_or_default().to_owned()).collect())
    }

    /// All keys under `w/`, read through the quorum.
    pub async fn written(&self) -> Result<BTreeMap<String, String>, String> {
        let mut all = BTreeMap::new();
        let mut from = b"w/".to_vec();
        loop {
            let body = json!({"key": ByteString(from.clone()), "range_end": ByteString(b"w0".to_vec()), "limit": PAGE});
            let said = self.ask(self.at, "/v3/kv/range", &body).await?;
            let pairs: Vec<(String, String)> = said["kvs"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|pair| (text(&pair["key"]), text(&pair["value"])))
                .collect();
            let Some((last, _)) = pairs.last() else { return Ok(all) };
            from = [last.as_bytes(), &[0]].concat();
            all.extend(pairs);
        }
    }

    /// The numbers whose values are missing.
    pub async fn lost(&self, acknowledged: &BTreeMap<u64, String>) -> Result<BTreeSet<u64>, String> {
        let written = self.written().await?;
        let is_there = |number: u64, key: &String| written.get(key) == Some(&number.to_string());
        let lost = acknowledged.iter().filter(|(number, key)| !is_there(**number, key));
        Ok(lost.map(|(number, _)| *number).collect())
    }
}

/// The status of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub version: String,
    pub leads: bool,
    pub has_leader: bool,
}

impl Store for Etcd {
    async fn write(&mut self, number: u64) -> Result<String, String> {
        let key = format!("w/{number:010}");
        let member = self.at;
        // If this future is dropped, the next request goes to another member.
        self.at = (self.at + 1) % self.members.len();
        let bytes = |text: String| ByteString(text.into_bytes());
        let body = json!({"key": bytes(key.clone()), "value": bytes(number.to_string())});
        self.ask(member, "/v3/kv/put", &body).await?;
        self.at = member;
        Ok(key)
    }
}

fn text(base64: &Value) -> String {
    let bytes: ByteString = serde_json::from_value(base64.clone()).unwrap_or_default();
    String::from_utf8_lossy(&bytes.0).into_owned()
}
