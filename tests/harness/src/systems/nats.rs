//! A client of NATS for writers and checks: requests, and JetStream by requests.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::systems::writer::Store;

/// A stream's name, which is also its subject.
const STREAM: &str = "writes";
/// The time-out: JetStream drops requests for a stream without a leader.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a message is requested before it counts as lost.
const TRIES: u32 = 50;

/// The number of connections so far.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// A client of one server, which switches to another one after a failure.
pub struct Nats {
    servers: Vec<String>,
    at: usize,
    /// `None` after a request that timed out: its answer may still come.
    connection: Option<Connection>,
}

struct Connection {
    stream: BufReader<TcpStream>,
    /// Where the server answers: other connections have others.
    inbox: String,
    requests: u64,
    /// The server announced its shutdown: clients should switch.
    goes: bool,
}

impl Nats {
    /// For servers at these addresses.
    pub fn new(addresses: impl IntoIterator<Item = String>) -> Self {
        Self { servers: addresses.into_iter().collect(), at: 0, connection: None }
    }

    /// Sends a request.
    pub async fn request(&mut self, subject: &str, payload: &[u8]) -> Result<Vec<u8>, String> {
        let server = self.at;
        // If this future is dropped, the next request goes to another server.
        self.at = (self.at + 1) % self.servers.len();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.servers[server]).await.map_err(|error| error.to_string())?,
        };
        let answer = tokio::time::timeout(PATIENCE, connection.request(subject, payload)).await;
        let answer = answer.map_err(|_| format!("{subject} is not answered within {PATIENCE:?}"))?;
        let answer = answer.map_err(|error| error.to_string())?;
        if !connection.goes {
            (self.connection, self.at) = (Some(connection), server);
        }
        answer.ok_or_else(|| format!("nobody answers {subject}"))
    }

    /// A request to JetStream.
    pub async fn stream(&mut self, what: &str, body: &Value) -> Result<Value, String> {
        let answer =
            self.request(&format!("$JS.API.STREAM.{what}.{STREAM}"), body.to_string().as_bytes()).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        if answer["error"].is_null() { Ok(answer) } else { Err(answer["error"].to_string()) }
    }

    /// The message at a position; `None` if the stream says that there is none.
    async fn message(&mut self, place: u64) -> Result<Option<Vec<u8>>, String> {
        let mut last = String::new();
        for _ in 0..TRIES {
            match self.stream("MSG.GET", &json!({"seq": place})).await {
                Ok(found) => {
                    let data = serde_json::from_value::<ByteString>(found["message"]["data"].clone());
                    return data.map(|data| Some(data.0)).map_err(|error| format!("{found}: {error}"));
                }
                Err(said) if said.contains("no message found") => return Ok(None),
                Err(why) => last = why,
            }
            tokio::time::sleep(PATIENCE / 10).await;
        }
        Err(last)
    }

    /// The numbers whose messages are missing.
    pub async fn lost(&mut self, acknowledged: &BTreeMap<u64, String>) -> Result<BTreeSet<u64>, String> {
        let mut lost = BTreeSet::new();
        for (number, place) in acknowledged {
            let place: u64 = place.parse().map_err(|_| format!("{place} is no place"))?;
            if self.message(place).await?.is_none_or(|data| data != number.to_string().into_bytes()) {
                lost.insert(*number);
            }
        }
        Ok(lost)
    }
}

impl Store for Nats {
    async fn write(&mut self, number: u64) -> Result<String, String> {
        let answer = self.request(STREAM, number.to_string().as_bytes()).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        match answer["seq"].as_u64() {
            Some(place) if answer["error"].is_null() => Ok(place.to_string()),
            _ => Err(answer.to_string()),
        }
    }
}

impl Connection {
    async fn open(address: &str) -> std::io::Result<Self> {
        let stream = BufReader::new(TcpStream::connect((address, 4222)).await?);
        let inbox = format!("_INBOX.{}", OPENED.fetch_add(1, Ordering::Relaxed));
        let mut connection = Self { stream, inbox, requests: 0, goes: false };
        let mut info = String::new();
        connection.stream.read_line(&mut info).await?;
        // Without headers, missing responders are not reported.
        let options = r#"{"verbose":false,"headers":true,"no_responders":true}"#;
        let hello = format!("CONNECT {options}\r\nSUB {}.* 1\r\n", connection.inbox);
        connection.stream.write_all(hello.as_bytes()).await?;
        Ok(connection)
    }

    /// The answer; `None` if there are no responders.
    async fn request(&mut self, subject: &str, payload: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
        self.requests += 1;
        let inbox = format!("{}.{}", self.inbox, self.requests);
        let head = format!("PUB {subject} {inbox} {}\r\n", payload.len());
        self.stream.write_all(&[head.as_bytes(), payload, b"\r\n"].concat()).await?;
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line).await? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |word: &str| word.parse::<usize>().map_err(std::io::Error::other);
            match words.as_slice() {
                ["INFO", ..] => self.goes |= line.contains("\"ldm\":true"),
                ["PING"] => self.stream.write_all(b"PONG\r\n").await?,
                ["MSG", to, .., size] => {
                    let answer = self.payload(number(size)?).await?;
                    if *to == inbox {
                        return Ok(Some(answer));
                    }
                }
                ["HMSG", to, .., head, size] => {
                    let (head, answer) = (number(head)?, self.payload(number(size)?).await?);
                    if *to == inbox {
                        let none = answer[..head].starts_with(b"NATS/1.0 503");
                        return Ok((!none).then(|| answer[head..].to_vec()));
                    }
                }
                ["-ERR", ..] => return Err(std::io::Error::other(line)),
                _ => {}
            }
        }
    }

    async fn payload(&mut self, size: usize) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; size + 2];
        self.stream.read_exact(&mut bytes).await?;
        bytes.truncate(size);
        Ok(bytes)
    }
}
