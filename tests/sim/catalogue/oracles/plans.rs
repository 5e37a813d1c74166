//! Plans over time: a task's index never decreases, an ended plan never restarts, and no two plans of an object have
//! the same ID.

use std::collections::BTreeMap;

use super::state::PlanState;

/// The plans of every object so far.
#[derive(Default)]
pub struct Plans {
    /// By object and plan: the furthest task, and whether the plan has ended.
    seen: BTreeMap<(String, String), (usize, bool)>,
}

impl Plans {
    /// Records an object's new status. An error is a violation.
    pub fn follow(&mut self, object: &str, before: &PlanState, now: &PlanState) -> Result<(), String> {
        if now.id.is_empty() || before == now {
            return Ok(());
        }
        let over = now.state != "Active";
        let key = (object.to_owned(), now.id.clone());
        let Some((furthest, was_over)) = self.seen.insert(key, (now.current, over)) else {
            return Ok(());
        };
        if before.id != now.id {
            return Err(format!("oracle 4: plan {} of {object} comes a second time", now.id));
        }
        if was_over && !over {
            return Err(format!("oracle 4: plan {} of {object} was over and goes on", now.id));
        }
        if now.current < furthest {
            return Err(format!(
                "oracle 4: plan {} of {object} goes back from task {furthest} to {}",
                now.id, now.current
            ));
        }
        Ok(())
    }
}
