//! Container logs, in files with the format of container runtimes: a line each, with time and stream. Also selects
//! the part that `kubectl logs` requests.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::jiff::Timestamp;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

use crate::clock;

/// The longest entry, in bytes; longer lines are split.
const MOST_BYTES: usize = 16 * 1024;

/// The logs that are still written: followers wait for more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open(Arc<Mutex<BTreeSet<PathBuf>>>);

impl Open {
    pub(crate) fn is(&self, path: &Path) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(path)
    }

    /// Creates a log, open until the returned value is dropped.
    pub(crate) fn create(&self, path: &Path) -> io::Result<Arc<Log>> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let file = Mutex::new(File::create(path)?);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        Ok(Arc::new(Log { file, path: path.to_owned(), open: self.clone() }))
    }
}

/// The log of one run of a container.
pub(crate) struct Log {
    file: Mutex<File>,
    path: PathBuf,
    open: Open,
}

impl Log {
    /// Copies a pipe into the log, until it ends.
    pub(crate) async fn keep(self: Arc<Self>, pipe: impl AsyncRead + Unpin, stream: &'static str) {
        let mut pipe = BufReader::with_capacity(MOST_BYTES, pipe);
        let mut line = Vec::new();
        loop {
            let Ok(bytes) = pipe.fill_buf().await else { return };
            if bytes.is_empty() {
                if !line.is_empty() {
                    self.write(stream, 'F', &line);
                }
                return;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let room = MOST_BYTES - line.len();
            let taken = end.unwrap_or(bytes.len()).min(room);
            line.extend_from_slice(&bytes[..taken]);
            let whole = end == Some(taken);
            pipe.consume(taken + usize::from(whole));
            if whole || line.len() == MOST_BYTES {
                self.write(stream, if whole { 'F' } else { 'P' }, &line);
                line.clear();
            }
        }
    }

    fn write(&self, stream: &str, tag: char, line: &[u8]) {
        let mut entry = format!("{:.9} {stream} {tag} ", clock::now()).into_bytes();
        entry.extend_from_slice(line);
        entry.push(b'\n');
        // A full disk loses lines, as in other runtimes.
        let _ = self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&entry);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.open.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}

/// The requested part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) tail: Option<usize>,
    pub(crate) since: Option<Timestamp>,
    pub(crate) timestamps: bool,
}

/// The requested part of these complete lines.
pub(crate) fn shown(bytes: &[u8], part: &Part) -> Vec<u8> {
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let entries: Vec<_> = lines.into_iter().filter_map(entry).collect();
    let entries = entries.into_iter().filter(|(time, _, _)| {
        part.since.is_none_or(|since| time.parse::<Timestamp>().is_ok_and(|time| time >= since))
    });
    let entries: Vec<_> = entries.collect();
    let skipped = part.tail.map_or(0, |tail| entries.len().saturating_sub(tail));
    let mut out = Vec::new();
    for (time, whole, text) in entries.into_iter().skip(skipped) {
        if part.timestamps {
            out.extend_from_slice(time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(text);
        if whole {
            out.push(b'\n');
        }
    }
    out
}

/// The time of an entry, whether it ends a line, and its text.
fn entry(line: &[u8]) -> Option<(&str, bool, &[u8])> {
    let line = line.strip_suffix(b"\n")?;
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(parts.next()?).ok()?;
    let _stream = parts.next()?;
    let whole = parts.next()? == b"F";
    Some((time, whole, parts.next()?))
}

/// The end of a log as a termination message: at most 80 lines and 2,048 bytes.
pub(crate) fn last_words(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = shown(&bytes, &Part { tail: Some(80), ..Part::default() });
    let from = text.len().saturating_sub(2048);
    String::from_utf8_lossy(&text[from..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"2026-01-01T00:00:01.000000000Z stdout F one\n\
        2026-01-01T00:00:02.000000000Z stderr P tw\n\
        2026-01-01T00:00:02.500000000Z stderr F o\n\
        2026-01-01T00:00:03.000000000Z stdout F \n";

    fn text(part: &Part) -> String {
        String::from_utf8(shown(LOG, part)).unwrap()
    }

    #[test]
    fn log_lines_are_shown_without_metadata() {
        assert_eq!(text(&Part::default()), "one\ntwo\n\n");
    }

    #[test]
    fn log_is_limited_by_tail_and_since_time() {
        assert_eq!(text(&Part { tail: Some(1), ..Part::default() }), "\n");
        let since = Some("2026-01-01T00:00:02.1Z".parse().unwrap());
        assert_eq!(text(&Part { since, ..Part::default() }), "o\n\n");
        let part = Part { tail: Some(1), timestamps: true, ..Part::default() };
        assert_eq!(text(&part), "2026-01-01T00:00:03.000000000Z \n");
    }

    #[tokio::test]
    async fn all_output_is_kept_and_long_lines_are_split() {
        let path = std::env::temp_dir().join(format!("process-kubelet-log-{}", std::process::id()));
        let open = Open::default();
        let log = open.create(&path).unwrap();
        assert!(open.is(&path));
        let written = [b"a\n\n".to_vec(), vec![b'x'; 2 * MOST_BYTES + 5], b"\nend".to_vec()].concat();
        log.keep(written.as_slice(), "stdout").await;
        assert!(!open.is(&path), "nobody writes it any more");
        let kept = std::fs::read(&path).unwrap();
        assert_eq!(shown(&kept, &Part::default()), [written, b"\n".to_vec()].concat());
        std::fs::remove_file(path).unwrap();
    }
}
