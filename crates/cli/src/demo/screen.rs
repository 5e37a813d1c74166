//! The demo's output: on a terminal a picture that is redrawn in place, with the narration above it; else plain
//! lines, one per change.

use std::io::{self, IsTerminal, Write};

use ratatui::style::Style;

use crate::is_coloured;
use crate::text::{Line, Terminal, paint, wrapped};

/// The default width in columns.
const WIDTH: usize = 120;
/// The rows of a terminal that a picture leaves free, for the next narration.
const MARGIN: usize = 3;

/// Standard output.
pub struct Screen {
    out: Box<dyn Write + Send>,
    terminal: bool,
    /// Returns the terminal's columns and rows.
    size: fn() -> Option<(usize, usize)>,
    colours: bool,
    unicode: bool,
    /// The lines of the picture that are on the terminal.
    drawn: Vec<String>,
    /// The last plain line.
    last: String,
    /// The first error: the output is closed.
    error: Option<io::Error>,
}

impl Screen {
    /// Standard output.
    pub fn of_stdout() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = io::stdout().is_terminal() && !dumb;
        Self {
            out: Box::new(io::stdout()),
            terminal,
            size: of_stdout,
            colours: terminal && is_coloured(&io::stdout()),
            unicode: Terminal::of_stdout().unicode,
            drawn: Vec::new(),
            last: String::new(),
            error: None,
        }
    }

    /// The error that ended the output, if any.
    pub fn error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Styles a text, if colours are supported.
    pub fn paint(&self, style: Style, text: &str) -> String {
        paint(style, text, self.colours)
    }

    /// True if the picture is redrawn in place.
    pub fn is_live(&self) -> bool {
        self.terminal
    }

    /// The most rows of a picture.
    pub fn rows(&self) -> usize {
        self.size().map_or(usize::MAX, |(_, rows)| rows.saturating_sub(MARGIN).max(MARGIN))
    }

    /// Prints a line, above the picture if there is one.
    pub fn say(&mut self, text: &str) {
        let drawn = std::mem::take(&mut self.drawn);
        let mut out = up(drawn.len());
        let width = self.size().map_or(usize::MAX, |(columns, _)| columns);
        for line in text.split('\n') {
            out.push_str(&wrapped(line, width));
            out.push('\n');
        }
        for line in &drawn {
            out.push_str(line);
            out.push('\n');
        }
        self.drawn = drawn;
        self.write(&out);
    }

    /// The terminal's capabilities.
    pub fn terminal(&self) -> Terminal {
        let width = self.size().map_or(WIDTH, |(columns, _)| columns);
        Terminal { width, colours: self.colours, unicode: self.unicode }
    }

    /// Redraws the picture in place.
    pub fn draw(&mut self, picture: &[Line]) {
        let terminal = self.terminal();
        let lines: Vec<String> = picture.iter().map(|line| terminal.painted(line)).collect();
        if lines == self.drawn {
            return;
        }
        let mut out = up(self.drawn.len());
        for line in &lines {
            out.push_str(line);
            out.push('\n');
        }
        self.drawn = lines;
        self.write(&out);
    }

    /// Prints a plain line, unless it repeats the last one.
    pub fn note(&mut self, stamp: &str, line: &Line) {
        let text = Terminal { width: WIDTH, ..self.terminal() }.painted(line);
        if !text.trim().is_empty() && text != self.last {
            self.write(&format!("{stamp}{text}\n"));
            self.last = text;
        }
    }

    /// Leaves the picture in place; the next one is drawn below it.
    pub fn leave(&mut self) {
        self.drawn.clear();
    }

    fn size(&self) -> Option<(usize, usize)> {
        self.terminal.then(self.size).flatten()
    }

    fn write(&mut self, text: &str) {
        if self.error.is_none() {
            let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
            self.error = written.err();
        }
    }
}

fn of_stdout() -> Option<(usize, usize)> {
    let (width, height) = terminal_size::terminal_size_of(io::stdout())?;
    Some((usize::from(width.0), usize::from(height.0)))
}

/// Moves the cursor up and clears these lines.
fn up(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r\x1b[J") }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Captures what is written.
    #[derive(Clone, Default)]
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        fn taken(&self) -> String {
            String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
        }
    }

    fn screen(terminal: bool) -> (Screen, Paper) {
        let paper = Paper::default();
        let screen = Screen {
            out: Box::new(paper.clone()),
            terminal,
            size: || Some((20, 24)),
            colours: false,
            unicode: true,
            drawn: Vec::new(),
            last: String::new(),
            error: None,
        };
        (screen, paper)
    }

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|text| Line::from((*text).to_owned())).collect()
    }

    #[test]
    fn screen_redraws_in_place_and_prints_text_above() {
        let (mut screen, paper) = screen(true);
        screen.say("title");
        screen.draw(&lines(&["one", "two"]));
        assert_eq!(paper.taken(), "title\none\ntwo\n");
        screen.draw(&lines(&["one", "two"]));
        assert_eq!(paper.taken(), "", "what is the same is not drawn again");
        screen.draw(&lines(&["one", "more"]));
        assert_eq!(paper.taken(), "\x1b[2A\r\x1b[Jone\nmore\n");
        screen.say("a word");
        assert_eq!(paper.taken(), "\x1b[2A\r\x1b[Ja word\none\nmore\n");
        screen.leave();
        screen.draw(&lines(&["a line that is longer than the screen"]));
        assert_eq!(paper.taken(), "a line that is long…\n", "a line that wrapped could not be wiped");
        assert_eq!(screen.rows(), 21);
    }

    #[test]
    fn without_a_terminal_repeated_lines_are_written_once() {
        let (mut screen, paper) = screen(false);
        for text in ["one", "one", "", "two"] {
            screen.note("1s ", &Line::from(text));
        }
        assert_eq!(paper.taken(), "1s one\n1s two\n");
    }
}
