//! `windlass status -w`: the tree, redrawn at each change on the terminal's alternate screen; without a terminal, a
//! line per change.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Client;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::style::{Style, Stylize};
use ratatui::widgets::Paragraph;
use tokio::sync::mpsc;

use super::kinds::ObservedObjects;
use super::{Report, StatusArgs, exit_code, lines};
use crate::report::{Verdict, clock_time};
use crate::text::{Line, Terminal, mapped};
use windlass_kube_port::freshness::SILENT;

/// Changes within this time are drawn together.
const TOGETHER: Duration = Duration::from_millis(100);
/// How far one watch may lag behind another.
const BEHIND: Duration = Duration::from_secs(1);
/// The redraw interval for times that pass without a change.
const TICK: Duration = Duration::from_secs(1);

/// Shows fleets until the user quits.
pub async fn watch(
    client: &Client,
    observed: &mut ObservedObjects,
    arguments: &StatusArgs,
) -> Result<ExitCode, String> {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    if std::io::stdout().is_terminal() && !dumb {
        on_a_screen(client, observed, arguments).await
    } else {
        in_lines(client, observed, arguments).await
    }
}

/// A notice that the objects may be outdated, and since when, if the API server does not answer.
fn silence(observed: &ObservedObjects) -> Option<String> {
    let outdated = observed.outdated();
    let now = crate::now();
    (outdated >= SILENT).then(|| {
        let since = clock_time(now - outdated, now);
        format!("No response from the API server since {since} UTC; showing the state at that time.")
    })
}

fn is_over(reports: &[Box<dyn Report>], arguments: &StatusArgs) -> bool {
    arguments.exit_status && reports.first().is_none_or(|worst| worst.verdict() != Verdict::Progressing)
}

async fn in_lines(
    client: &Client,
    observed: &mut ObservedObjects,
    arguments: &StatusArgs,
) -> Result<ExitCode, String> {
    let terminal = Terminal { width: usize::MAX, ..Terminal::of_stdout() };
    let typed = arguments.selected.flags.connection.typed();
    for sentence in observed.unread() {
        eprintln!("windlass: {sentence}");
    }
    let mut changes = observed.watch(client);
    let stopped = crate::stopped()?;
    tokio::pin!(stopped);
    let mut before = std::collections::BTreeMap::new();
    let mut was_over = false;
    let mut was_silent = false;
    loop {
        let silent = silence(observed);
        let at = crate::now().format("%H:%M:%S");
        match &silent {
            Some(sentence) if !was_silent => crate::print(&format!("{at}  {sentence}\n"))?,
            None if was_silent => crate::print(&format!("{at}  The API server responds again.\n"))?,
            Some(_) | None => {}
        }
        was_silent = silent.is_some();
        let seen = observed.reports();
        for report in &seen {
            let name = report.name(arguments.selected.flags.all_namespaces);
            let mut line = Line::from(format!("{name}   ").bold());
            line.extend(report.line().spans);
            let text = terminal.painted(&mapped(&line, |text| typed.text(text)));
            let target = (report.target().to_string(), name);
            if before.get(&target) != Some(&text) {
                crate::print(&format!("{at}  {text}\n"))?;
                before.insert(target, text);
            }
        }
        // Outdated objects do not show how a rollout ended.
        let over = !was_silent && is_over(&seen, arguments);
        if over && was_over {
            return Ok(exit_code(&seen, true));
        }
        was_over = over;
        if over {
            // Each kind has its own watch: the nodes' may lag behind the fleet's.
            gather(&mut changes, BEHIND).await;
            continue;
        }
        tokio::select! {
            _ = changes.next() => {}
            () = tokio::time::sleep(TICK) => continue,
            () = &mut stopped => return Ok(ExitCode::SUCCESS),
        }
        gather(&mut changes, TOGETHER).await;
    }
}

/// Collects further changes within a time, to draw them together.
async fn gather(changes: &mut BoxStream<'static, ()>, within: Duration) {
    // The stream never ends.
    let _ = tokio::time::timeout(within, async { while changes.next().await.is_some() {} }).await;
}

async fn on_a_screen(
    client: &Client,
    observed: &mut ObservedObjects,
    arguments: &StatusArgs,
) -> Result<ExitCode, String> {
    let mut changes = observed.watch(client);
    let mut keys = keys();
    let stopped = crate::stopped()?;
    tokio::pin!(stopped);
    let screen = Screen::open();
    let Screen(mut terminal) = screen?;
    let mut from = 0;
    let ended = loop {
        let seen = observed.reports();
        let drawn = terminal.draw(|frame| {
            let area = frame.area();
            let mut terminal = Terminal::of_stdout();
            terminal.width = usize::from(area.width);
            let height = usize::from(area.height);
            let silent = silence(observed).map(|sentence| Line::from(sentence.red()));
            let above: Vec<Line> = silent.iter().flat_map(|line| terminal.folded(line, 0)).collect();
            let taken = 7 + above.len();
            let rows = if arguments.all { usize::MAX } else { height.saturating_sub(taken).max(3) };
            let all = [above, lines(&seen, arguments, terminal, rows)].concat();
            from = from.min(all.len().saturating_sub(height.saturating_sub(1)));
            let mut shown: Vec<Line> = all
                .iter()
                .skip(from)
                .take(height.saturating_sub(1))
                .map(|line| row(line, terminal))
                .collect();
            shown.resize(height.saturating_sub(1), Line::default());
            let more = if all.len() >= height { "  j k scroll" } else { "" };
            shown.push(row(&Line::from(format!("q quit{more}").dim()), terminal));
            frame.render_widget(Paragraph::new(shown), area);
        });
        if let Err(error) = drawn {
            break Err(format!("cannot write to the terminal: {error}"));
        }
        if silence(observed).is_none() && is_over(&seen, arguments) {
            break Ok((exit_code(&seen, true), seen));
        }
        let tick = tokio::time::sleep(TICK);
        let stop = tokio::select! {
            _ = changes.next() => {
                gather(&mut changes, TOGETHER).await;
                false
            }
            () = tick => false,
            key = keys.recv() => match key {
                Some(Key::Quit) => true,
                Some(Key::Down) => { from += 1; false }
                Some(Key::Up) => { from = from.saturating_sub(1); false }
                Some(Key::Other) | None => false,
            },
            () = &mut stopped => true,
        };
        if stop {
            break Ok((exit_code(&seen, arguments.exit_status), seen));
        }
    };
    ratatui::restore();
    let (code, seen) = ended?;
    // Leaves the last state on the regular screen.
    crate::print(&super::drawn(&seen, arguments, Terminal::of_stdout()))?;
    Ok(code)
}

/// The terminal's alternate screen, left again on drop.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, String> {
        ratatui::try_init().map(Self).map_err(|error| format!("cannot draw on the terminal: {error}"))
    }
}

fn row(line: &Line, terminal: Terminal) -> Line {
    let cut = terminal.cut(line);
    if terminal.colours { cut } else { cut.into_iter().map(|span| span.style(Style::new())).collect() }
}

/// A key press.
enum Key {
    Quit,
    Down,
    Up,
    Other,
}

/// Reads keys in a thread, which lives as long as the program.
fn keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(8);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let key = match event {
                Event::Key(key) if key.kind == KeyEventKind::Release => continue,
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => Key::Quit,
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::Quit,
                    KeyCode::Char('j') | KeyCode::Down => Key::Down,
                    KeyCode::Char('k') | KeyCode::Up => Key::Up,
                    _ => Key::Other,
                },
                _ => Key::Other,
            };
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    receiver
}
