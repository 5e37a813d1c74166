//! The in-memory state of a sidecar, and how tasks change it. No I/O, and nothing survives the process: a restarted
//! sidecar has to be marked ready again.

use std::collections::VecDeque;

use super::protocol::{SidecarTaskType, TaskAnswer, TaskRequest, TaskState};

/// The most tasks that are kept. Together with the limit on requests it bounds the memory.
const MAX_TASKS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Memory {
    ready: bool,
    halted: bool,
    /// Oldest first.
    tasks: VecDeque<Task>,
}

#[derive(Debug)]
struct Task {
    request: TaskRequest,
    state: TaskState,
    message: String,
}

impl Task {
    fn answer(&self) -> TaskAnswer {
        TaskAnswer { id: self.request.id.clone(), state: self.state, message: self.message.clone() }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Submitted {
    /// The task was accepted.
    New(TaskAnswer),
    /// It was accepted before; nothing changed.
    Again(TaskAnswer),
    /// The ID belongs to another task, of this type.
    OtherContent(SidecarTaskType),
    /// The memory is full of unfinished tasks.
    Full,
}

impl Memory {
    pub(super) fn ready(&self) -> bool {
        self.ready
    }

    pub(super) fn halted(&self) -> bool {
        self.halted
    }

    pub(super) fn task(&self, id: &str) -> Option<TaskAnswer> {
        self.tasks.iter().find(|task| task.request.id == id).map(Task::answer)
    }

    /// True if a task waits for the application's height.
    pub(super) fn awaits_height(&self) -> bool {
        self.tasks.iter().any(|task| task.state == TaskState::Running)
    }

    /// Accepts a task, or says why not. `reports_height`: true if the application's height can be queried.
    pub(super) fn submit(&mut self, request: TaskRequest, reports_height: bool) -> Submitted {
        if let Some(known) = self.tasks.iter().find(|task| task.request.id == request.id) {
            return if known.request == request {
                Submitted::Again(known.answer())
            } else {
                Submitted::OtherContent(known.request.kind)
            };
        }
        if self.tasks.len() >= MAX_TASKS {
            let Some(oldest) = self.tasks.iter().position(|task| task.state.is_finished()) else {
                return Submitted::Full;
            };
            self.tasks.remove(oldest);
        }
        let (state, message) = match request.kind {
            SidecarTaskType::MarkReady => {
                self.ready = true;
                (TaskState::Complete, "the node is marked ready".to_owned())
            }
            SidecarTaskType::HaltAtHeight if reports_height => {
                (TaskState::Running, "waiting for the application's height".to_owned())
            }
            SidecarTaskType::HaltAtHeight => (
                TaskState::Failed,
                "the sidecar cannot read the application's height: start it with --height-url".to_owned(),
            ),
        };
        let task = Task { request, state, message };
        let answer = task.answer();
        self.tasks.push_back(task);
        Submitted::New(answer)
    }

    /// Updates the tasks that wait for a height, from an observation or its error.
    pub(super) fn observe_height(&mut self, observed: &Result<i64, String>) {
        for task in self.tasks.iter_mut().filter(|task| task.state == TaskState::Running) {
            let Some(halt) = task.request.height() else { continue };
            match observed {
                Ok(height) if *height >= halt => {
                    self.halted = true;
                    task.state = TaskState::Complete;
                    task.message =
                        format!("the application reached height {height}; the halt height is {halt}");
                }
                Ok(height) => {
                    task.message = format!("waiting for height {halt}: the application is at {height}");
                }
                Err(sentence) => task.message = format!("waiting for height {halt}: {sentence}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(memory: &Memory, id: &str) -> Option<TaskState> {
        memory.task(id).map(|answer| answer.state)
    }

    #[test]
    fn halt_waits_for_its_own_height() {
        let mut memory = Memory::default();
        memory.submit(TaskRequest::halt_at_height("near", 10), true);
        memory.submit(TaskRequest::halt_at_height("far", 20), true);
        memory.observe_height(&Ok(9));
        assert_eq!(state(&memory, "near"), Some(TaskState::Running));
        assert!(!memory.halted());
        memory.observe_height(&Ok(10));
        assert_eq!(state(&memory, "near"), Some(TaskState::Complete));
        assert_eq!(state(&memory, "far"), Some(TaskState::Running));
        assert!(memory.halted() && memory.awaits_height());
        memory.observe_height(&Ok(25));
        assert_eq!(state(&memory, "far"), Some(TaskState::Complete));
        assert!(!memory.awaits_height());
    }

    #[test]
    fn completed_halt_stays_complete() {
        let mut memory = Memory::default();
        memory.submit(TaskRequest::halt_at_height("halt", 10), true);
        memory.observe_height(&Ok(10));
        let reached = memory.task("halt").unwrap();
        assert_eq!(reached.state, TaskState::Complete);
        for later in [Ok(11), Ok(3), Err("gone".to_owned())] {
            memory.observe_height(&later);
            assert_eq!(memory.task("halt"), Some(reached.clone()));
        }
        assert!(memory.halted());
    }

    #[test]
    fn unknown_height_keeps_the_halt_running_with_a_message() {
        let mut memory = Memory::default();
        memory.submit(TaskRequest::halt_at_height("halt", 10), true);
        memory.observe_height(&Err("the application is silent".to_owned()));
        let answer = memory.task("halt").unwrap();
        assert_eq!(answer.state, TaskState::Running);
        assert!(answer.message.contains("silent"), "{}", answer.message);
    }

    #[test]
    fn oldest_finished_task_is_evicted_first() {
        let mut memory = Memory::default();
        memory.submit(TaskRequest::halt_at_height("halt", 10), true);
        for n in 1..MAX_TASKS {
            memory.submit(TaskRequest::mark_ready(format!("r{n}")), true);
        }
        assert_eq!(state(&memory, "r1"), Some(TaskState::Complete));
        memory.submit(TaskRequest::mark_ready("one-more"), true);
        assert_eq!(memory.tasks.len(), MAX_TASKS);
        assert_eq!(state(&memory, "r1"), None);
        assert_eq!(state(&memory, "r2"), Some(TaskState::Complete));
        assert_eq!(state(&memory, "halt"), Some(TaskState::Running));
        assert_eq!(state(&memory, "one-more"), Some(TaskState::Complete));
    }

    #[test]
    fn memory_full_of_unfinished_tasks_accepts_no_more() {
        let mut memory = Memory::default();
        for n in 0..MAX_TASKS {
            memory.submit(TaskRequest::halt_at_height(format!("h{n}"), 10), true);
        }
        assert_eq!(memory.submit(TaskRequest::mark_ready("ready"), true), Submitted::Full);
        assert!(!memory.ready());
        let again = memory.submit(TaskRequest::halt_at_height("h0", 10), true);
        assert!(matches!(again, Submitted::Again(_)), "{again:?}");
    }
}
