//! Runs requests for many objects concurrently. The caller chooses what a failure means for the others.

use futures::stream::{self, StreamExt};

use windlass_kube_port::ClusterError;

/// How many requests run at the same time.
const AT_ONCE: usize = 16;

/// What the failure of one request means for the others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnFailure {
    /// No further request is started, and those under way are dropped.
    Stop,
    /// Like [`OnFailure::Stop`], but a conflict does not stop the others. It is still returned at the end, so that the
    /// object is reconciled again: no watch event need follow a conflict.
    StopUnlessConflict,
    /// All requests run to the end: the outcome of every write has to be known before anything else is decided. The
    /// first error is returned.
    DoAll,
}

/// Runs `act` on each of many objects, some at the same time, and returns the results in the order of the objects.
pub async fn for_each_concurrent<T, R, F>(
    items: impl IntoIterator<Item = T>,
    on_failure: OnFailure,
    act: impl Fn(T) -> F,
) -> Result<Vec<R>, ClusterError>
where
    F: Future<Output = Result<R, ClusterError>>,
{
    let numbered = items.into_iter().enumerate();
    let acts = stream::iter(numbered).map(|(index, item)| {
        let answer = act(item);
        async move { (index, answer.await) }
    });
    let (mut answers, mut failure) = (Vec::new(), None);
    let mut running = std::pin::pin!(acts.buffer_unordered(AT_ONCE));
    while let Some((index, answer)) = running.next().await {
        match answer {
            Ok(answer) => answers.push((index, answer)),
            Err(error) => {
                let goes_on = match on_failure {
                    OnFailure::Stop => false,
                    OnFailure::StopUnlessConflict => error.is_conflict(),
                    OnFailure::DoAll => true,
                };
                if !goes_on {
                    return Err(error);
                }
                failure.get_or_insert(error);
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    answers.sort_by_key(|(index, _)| *index);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn conflict() -> ClusterError {
        ClusterError::Conflict { object: "a".to_owned(), message: "changed".to_owned() }
    }

    fn refused() -> ClusterError {
        ClusterError::Refused { object: "b".to_owned(), message: "no".to_owned() }
    }

    /// How many of a hundred requests were started if the second fails with this error, and whether the result is a
    /// conflict.
    async fn begun(on_failure: OnFailure, failure: fn() -> ClusterError) -> (usize, bool) {
        let begun = AtomicUsize::new(0);
        let answer = for_each_concurrent(0..100, on_failure, |number| {
            begun.fetch_add(1, Ordering::Relaxed);
            async move { if number == 1 { Err(failure()) } else { Ok(number) } }
        })
        .await;
        (begun.load(Ordering::Relaxed), answer.is_err_and(|error| error.is_conflict()))
    }

    #[tokio::test]
    async fn failure_policy_decides_whether_other_objects_are_processed() {
        for (on_failure, failure, all_begun, is_conflict) in [
            (OnFailure::Stop, conflict as fn() -> ClusterError, false, true),
            (OnFailure::Stop, refused, false, false),
            (OnFailure::StopUnlessConflict, conflict, true, true),
            (OnFailure::StopUnlessConflict, refused, false, false),
            (OnFailure::DoAll, conflict, true, true),
            (OnFailure::DoAll, refused, true, false),
        ] {
            let (begun, conflicted) = begun(on_failure, failure).await;
            assert_eq!((begun == 100, conflicted), (all_begun, is_conflict), "{on_failure:?}: {begun}");
        }
    }

    #[tokio::test]
    async fn results_follow_the_order_of_the_objects() {
        let slow_first = |number: u64| async move {
            for _ in number..8 {
                tokio::task::yield_now().await;
            }
            Ok(number)
        };
        let answers = for_each_concurrent(0..8, OnFailure::Stop, slow_first).await;
        assert_eq!(answers.ok(), Some((0..8).collect()));
    }
}
