//! The `WorkerDeployments` that were read, with their reports.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::stream::BoxStream;
use kube::Client;
use serde_json::Value;

use super::report::WorkersReport;
use crate::extension::Objects;
use crate::extension::objects::ReadObjects;
use crate::status::Report;

pub struct WorkersObjects(pub ReadObjects);

#[async_trait]
impl Objects for WorkersObjects {
    fn missing(&self) -> &[String] {
        &self.0.missing
    }

    fn refused(&self) -> Option<&str> {
        self.0.refused.as_deref()
    }

    fn current(&self) -> Vec<Value> {
        self.0.current()
    }

    fn reports(&self, now: DateTime<Utc>) -> Vec<Box<dyn Report>> {
        let report = |object: &Value| Box::new(WorkersReport::of(object, now)) as Box<dyn Report>;
        self.0.current().iter().map(report).collect()
    }

    async fn may_follow(&mut self, client: &Client) -> Result<(), String> {
        self.0.may_follow(client).await
    }

    fn watch(&mut self, client: &Client) -> BoxStream<'static, ()> {
        self.0.watch(client)
    }
}
