//! Kills processes of this process's kubelet, like the kernel would.
#![allow(dead_code, reason = "each test uses its own part of this")]

use std::{fs, time::Duration};

use windlass::clock::monotonic;

const PATIENCE: Duration = Duration::from_mins(1);

/// Sends SIGKILL to the containers' processes whose command lines contain all marks; returns how many there were.
pub fn kill(marks: &[&str]) -> usize {
    let found = processes(marks);
    for pid in &found {
        // A process that has ended meanwhile is not reaped yet: its ID is not reused.
        let _ = std::process::Command::new("kill").args(["-KILL", pid]).status();
    }
    found.len()
}

/// Kills as soon as there is a process.
pub async fn kill_one(marks: &[&str]) {
    let until = monotonic() + PATIENCE;
    while kill(marks) == 0 {
        assert!(monotonic() < until, "no process with {marks:?} came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The IDs of the processes that this one has started, never those of another test.
fn processes(marks: &[&str]) -> Vec<String> {
    let own = std::process::id().to_string();
    let all = fs::read_dir("/proc").into_iter().flatten();
    let all = all.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    all.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            marks.iter().all(|mark| line.contains(mark)) && parent(pid).as_deref() == Some(&own)
        })
        .collect()
}

fn parent(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program stands in parentheses, and may contain any characters.
    stat.rsplit_once(") ")?.1.split(' ').nth(1).map(str::to_owned)
}
