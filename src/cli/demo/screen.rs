//! Where the demo is shown: on a terminal a picture that is drawn anew in its place, with what is said above it; else
//! plain lines, one for each change.

use std::io::{self, IsTerminal, Write};

use super::text::{Line, Style, paint, wrapped};

/// How wide a line is where nobody says so.
const WIDTH: usize = 120;
/// A picture leaves so many rows of a terminal free, for what is said next.
const MARGIN: usize = 3;

/// Standard output.
pub struct Screen {
    out: io::Stdout,
    terminal: bool,
    colours: bool,
    /// What of the picture stands on the terminal.
    drawn: Vec<String>,
    /// The last plain line.
    last: String,
    /// The first error: nobody reads any more.
    error: Option<io::Error>,
}

impl Screen {
    /// Standard output as it is.
    pub fn of_stdout() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = io::stdout().is_terminal() && !dumb;
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            out: io::stdout(),
            terminal,
            colours: terminal && !no_colour,
            drawn: Vec::new(),
            last: String::new(),
            error: None,
        }
    }

    /// Why nothing can be shown any more.
    pub fn error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    /// Text in a colour, if there are any.
    pub fn paint(&self, style: Style, text: &str) -> String {
        paint(style, text, self.colours)
    }

    /// Whether the picture has a place of its own.
    pub fn is_live(&self) -> bool {
        self.terminal
    }

    /// How many rows a picture may have.
    pub fn rows(&self) -> usize {
        self.size().map_or(usize::MAX, |(_, rows)| rows.saturating_sub(MARGIN).max(MARGIN))
    }

    /// Says something: above the picture, if there is one.
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

    /// Draws the picture in its place.
    pub fn draw(&mut self, picture: &[Line]) {
        let width = self.size().map_or(WIDTH, |(columns, _)| columns);
        let lines: Vec<String> = picture.iter().map(|line| line.painted(width, self.colours)).collect();
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

    /// Writes a plain line, unless it says what the last one said.
    pub fn note(&mut self, stamp: &str, line: &Line) {
        let text = line.painted(WIDTH, self.colours);
        if !text.trim().is_empty() && text != self.last {
            self.write(&format!("{stamp}{text}\n"));
            self.last = text;
        }
    }

    /// Leaves the picture where it stands; the next one gets a place of its own.
    pub fn leave(&mut self) {
        self.drawn.clear();
    }

    fn size(&self) -> Option<(usize, usize)> {
        let size = self.terminal.then(|| terminal_size::terminal_size_of(&self.out)).flatten();
        size.map(|(width, height)| (usize::from(width.0), usize::from(height.0)))
    }

    fn write(&mut self, text: &str) {
        if self.error.is_none() {
            let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
            self.error = written.err();
        }
    }
}

/// Back to the first of so many lines, and what is there wiped.
fn up(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!("\x1b[{lines}A\r\x1b[J") }
}
