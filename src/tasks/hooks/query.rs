//! `check-query`: a query had a number of successes in a row, and not too many failures.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::turn::{Answer, Turn, hook_task, seconds};
use crate::api::HookAction;
use crate::api::hooks::QueryHook;
use crate::engine::{Outcome, TaskError};
use crate::hooks::Filled;
use crate::probe::hooks::{HookAnswer, HookProbe, HookQuestion, QueryProbe, Verdict};

/// The default for a hook's interval.
const INTERVAL_SECONDS: i64 = 30;
/// The timeout of one query.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);
/// The requeue delay while no query may be sent.
const NOT_NOW: Duration = Duration::from_secs(5);

hook_task! {
    /// Queries Prometheus at each interval until there are enough successes in a row.
    CheckQuery = "check-query", |turn| check(&turn)
}

/// The counts so far. They are persisted, so that an operator continues with them after a restart.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
struct Counts {
    /// Successes in a row.
    successes: i64,
    /// Failures in total.
    failures: i64,
    /// The time of the answer that was counted last: each answer counts once.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<DateTime<Utc>>,
}

impl Counts {
    fn take(&mut self, answer: &HookAnswer) {
        self.at = Some(answer.at);
        match answer.verdict {
            Verdict::Success => self.successes += 1,
            Verdict::Failure => (self.successes, self.failures) = (0, self.failures + 1),
            Verdict::Neither => self.successes = 0,
            // There was no result, so the counts stay as they are.
            Verdict::Nothing => {}
        }
    }
}

fn check(turn: &Turn<'_>) -> Answer {
    let Some(HookAction::Query(query)) = turn.hook.action() else { return Ok(Outcome::Done) };
    let (count, limit) = (query.count.unwrap_or(1).max(1), query.failure_limit.unwrap_or(0));
    let question = match question(turn, query) {
        Ok(question) => question,
        Err(why) if turn.is_overdue() => return turn.is_late(&why),
        Err(why) => return Ok(turn.waits(why, NOT_NOW)),
    };
    let mut counts: Counts = Counts::deserialize(&turn.cx.record.progress).unwrap_or_default();
    let (prober, owner) = (&turn.scope.prober, turn.scope.hook_owner());
    let interval = question.interval;
    let new = prober.last(&owner, &question).filter(|answer| counts.at != Some(answer.at));
    if let Some(answer) = new {
        let before = (counts.successes, counts.failures);
        counts.take(&answer);
        let so_far = format!(
            "the query {}; {} of {count} successes in a row, {} failures of at most {limit}",
            answer.said, counts.successes, counts.failures
        );
        if counts.failures > limit {
            return Err(TaskError::terminal(so_far));
        }
        if counts.successes >= count {
            return Ok(Outcome::Done);
        }
        if turn.is_overdue() {
            return turn.is_late(&so_far);
        }
        if (counts.successes, counts.failures) != before {
            return Ok(turn.keeps(so_far, interval, json!(counts)));
        }
        // This answer changes no count, so it is not persisted: to record its time would be a write at each interval.
        if let Some(why) = &turn.scope.hold {
            return Ok(turn.waits(why.clone(), NOT_NOW));
        }
        return Ok(turn.waits(so_far, prober.ask(&owner, question, Duration::ZERO).again));
    }
    // After a restart the query is sent when it would have been sent anyway. If the clock was set back, it is sent at
    // once.
    let since = counts.at.and_then(|at| (turn.cx.now - at).to_std().ok());
    let first = since.map_or(Duration::ZERO, |since| interval.saturating_sub(since));
    // If the time is up by then, and a query was due while no operator was there to send it, its answer decides. One
    // always comes: a query that fails or times out is answered with that.
    let is_owed = first.is_zero() && turn.scope.hold.is_none() && prober.last(&owner, &question).is_none();
    if turn.is_overdue() && !is_owed {
        return turn.is_late(&turn.last_message_or("the query was not answered".to_owned()));
    }
    if let Some(why) = &turn.scope.hold {
        return Ok(turn.waits(why.clone(), NOT_NOW));
    }
    let heard = prober.ask(&owner, question, first);
    Ok(turn.waits(turn.last_message_or("waiting for the result of the query".to_owned()), heard.again))
}

/// The query. An error is a sentence: the query cannot be sent.
fn question(turn: &Turn<'_>, query: &QueryHook) -> Result<HookQuestion, String> {
    let Some(prometheus) = &turn.scope.rules.prometheus else {
        return Err("the operator was started without --prometheus-url".to_owned());
    };
    let promql = Filled::parse(&query.promql).map_err(|why| format!("query.promql {why}"))?;
    Ok(HookQuestion {
        task_id: turn.cx.record.id.clone(),
        attempt: turn.attempt(),
        interval: seconds(query.interval_seconds.unwrap_or(INTERVAL_SECONDS)),
        timeout: turn.request_timeout(QUERY_TIMEOUT),
        probe: HookProbe::Query(Box::new(QueryProbe {
            url: prometheus.instant_queries(),
            access: turn.scope.rules.prometheus_access.clone(),
            promql: promql.fill_plainly(&turn.values())?,
            success: query.success.clone(),
            failure: query.failure.clone(),
        })),
    })
}
