//! Styled lines of text, and their rendering for a terminal's width, colours and character set.

/// The style of a piece of text, where colours are supported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Style {
    /// Default.
    Plain,
    /// Headings.
    Bold,
    /// Secondary text.
    Dim,
    /// Failures.
    Red,
    /// Success.
    Green,
    /// Progress.
    Yellow,
    /// The narration of the demo.
    #[cfg_attr(not(feature = "demo"), allow(dead_code, reason = "only the demo tells a story"))]
    Magenta,
    /// Unchanged.
    Cyan,
}

impl Style {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Red => "31",
            Self::Green => "32",
            Self::Yellow => "33",
            Self::Magenta => "35",
            Self::Cyan => "36",
        }
    }
}

/// The capabilities of the reader's terminal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Terminal {
    /// The width in columns.
    pub width: usize,
    /// True if it shows colours.
    pub colours: bool,
    /// True if it shows more than ASCII.
    pub unicode: bool,
}

impl Terminal {
    /// The capabilities of standard output: the width of its terminal, else of `COLUMNS`, else unlimited.
    pub fn of_stdout() -> Self {
        let out = std::io::stdout();
        let terminal = terminal_size::terminal_size_of(&out).map(|(width, _)| usize::from(width.0));
        let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
        Self {
            width: terminal.or_else(columns).filter(|width| *width > 0).unwrap_or(usize::MAX),
            colours: super::is_coloured(&out),
            unicode: is_utf8(|name| std::env::var(name).ok()),
        }
    }
}

/// True if the locale is UTF-8, or unset, as in most containers.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
    locale.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// The ASCII replacement of a character.
fn plain_letter(letter: char) -> &'static str {
    match letter {
        '✗' => "x",
        '◐' => "~",
        '●' => "*",
        '○' => "o",
        '◉' => "@",
        '✓' => "+",
        '━' => "=",
        '─' | '–' | '—' => "-",
        '├' | '│' => "|",
        '└' => "`",
        '→' => "->",
        '…' => "...",
        '▸' => ">",
        '“' | '”' => "\"",
        '‘' | '’' => "'",
        _ => "?",
    }
}

/// A line, in styled pieces.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Line(Vec<(Style, String)>);

impl Line {
    /// A line with a single piece.
    pub fn of(style: Style, text: impl Into<String>) -> Self {
        let mut line = Self::default();
        line.add(style, text);
        line
    }

    /// Appends a piece. Control characters are removed: kubelets and servers may send any text.
    pub fn add(&mut self, style: Style, text: impl Into<String>) {
        let text: String = text.into();
        let text = if text.contains(char::is_control) { text.replace(char::is_control, " ") } else { text };
        self.0.push((style, text));
    }

    /// The same line with each text mapped.
    pub fn put(&self, other: impl Fn(&str) -> String) -> Self {
        Self(self.0.iter().map(|(style, text)| (*style, other(text))).collect())
    }

    /// Its pieces.
    pub fn pieces(&self) -> &[(Style, String)] {
        &self.0
    }

    /// The text without styles.
    pub fn plain(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect::<String>().trim_end().to_owned()
    }

    /// The width in columns.
    pub fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// The same line in the supported character set.
    pub fn spelled(&self, unicode: bool) -> Self {
        if unicode {
            return self.clone();
        }
        let spell = |text: &str| {
            let letters =
                text.chars().map(|c| if c.is_ascii() { c.to_string() } else { plain_letter(c).to_owned() });
            letters.collect::<String>()
        };
        Self(self.0.iter().map(|(style, text)| (*style, spell(text))).collect())
    }

    /// Truncates to the terminal's width; a truncated line ends in an ellipsis.
    pub fn cut(&self, terminal: Terminal) -> Self {
        let line = self.spelled(terminal.unicode);
        let ellipsis = if terminal.unicode { "…" } else { "..." };
        let fits = line.plain().chars().count() <= terminal.width;
        let mut room =
            if fits { terminal.width } else { terminal.width.saturating_sub(ellipsis.chars().count()) };
        let mut out = Self::default();
        for (style, text) in line.0 {
            let cut: String = text.chars().take(room).collect();
            room -= cut.chars().count();
            if !cut.is_empty() {
                out.0.push((style, cut));
            }
        }
        if !fits {
            out.0.push((Style::Plain, ellipsis.to_owned()));
        }
        out
    }

    /// Truncated and styled for the terminal.
    pub fn painted(&self, terminal: Terminal) -> String {
        let out: String =
            self.cut(terminal).0.iter().map(|(style, text)| paint(*style, text, terminal.colours)).collect();
        if terminal.colours { out } else { out.trim_end().to_owned() }
    }

    /// Its words, each with the blanks after it, in pieces. A piece that begins with one blank belongs to the word
    /// before it, so that a sign is not separated from its subject.
    fn words(&self) -> Vec<Vec<(Style, String)>> {
        let (mut words, mut word) = (Vec::new(), Vec::new());
        for (style, text) in &self.0 {
            let mut has_begun = text.starts_with("  ");
            for part in text.split_inclusive(' ') {
                has_begun |= part != " ";
                word.push((*style, part.to_owned()));
                if has_begun && part.ends_with(' ') {
                    words.push(std::mem::take(&mut word));
                }
            }
        }
        words.push(word);
        words
    }

    /// Wraps between words; continuation lines are indented by `indent` blanks.
    pub fn folded(&self, terminal: Terminal, indent: usize) -> Vec<Self> {
        let line = self.spelled(terminal.unicode);
        if line.width() <= terminal.width {
            return vec![line];
        }
        let (mut lines, mut now, mut column) = (Vec::new(), Self::default(), 0);
        for word in line.words() {
            let text: String = word.iter().map(|(_, text)| text.as_str()).collect();
            let long = text.trim_end().chars().count();
            if column > indent && column + long > terminal.width {
                lines.push(std::mem::replace(&mut now, Self::of(Style::Plain, " ".repeat(indent))));
                column = indent;
            }
            column += text.chars().count();
            for (style, text) in word {
                now.add(style, text);
            }
        }
        lines.push(now);
        lines
    }
}

/// Wraps a line that is longer than `width` columns, aligned with its own indentation. Escape sequences count as
/// zero.
#[cfg_attr(not(feature = "demo"), allow(dead_code, reason = "only the demo tells a story"))]
pub fn wrapped(line: &str, width: usize) -> String {
    let indent = line.chars().take_while(|c| matches!(c, ' ' | '▸')).count();
    let (mut out, mut column) = (String::new(), 0);
    for word in line.split_inclusive(' ') {
        let long = seen(word.trim_end());
        if column > indent && column + long > width {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        }
        out.push_str(word);
        column += seen(word);
    }
    out
}

/// The width of a text in columns, without escape sequences.
#[cfg_attr(not(feature = "demo"), allow(dead_code, reason = "only the demo tells a story"))]
fn seen(text: &str) -> usize {
    let (mut count, mut escaped) = (0, false);
    for letter in text.chars() {
        match letter {
            '\x1b' => escaped = true,
            'm' if escaped => escaped = false,
            _ if !escaped => count += 1,
            _ => {}
        }
    }
    count
}

/// The text with escape sequences for the style, if `colours`.
pub fn paint(style: Style, text: &str, colours: bool) -> String {
    if colours && style != Style::Plain {
        format!("\x1b[{}m{text}\x1b[0m", style.code())
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_folded_between_words_under_its_beginning() {
        assert_eq!(wrapped("   ▸ one two three", 13), "   ▸ one two\n     three");
        assert_eq!(wrapped("short", 13), "short");
        assert_eq!(wrapped("a-word-that-is-too-long for it", 10), "a-word-that-is-too-long\nfor it");
        assert_eq!(wrapped("\x1b[35mone\x1b[0m two three", 7), "\x1b[35mone\x1b[0m two\nthree");
    }

    fn terminal(width: usize, colours: bool) -> Terminal {
        Terminal { width, colours, unicode: true }
    }

    #[test]
    fn a_line_is_cut_by_what_is_seen_of_it() {
        let mut line = Line::of(Style::Red, "✗ red");
        line.add(Style::Plain, " and plain");
        assert_eq!(line.painted(terminal(80, false)), "✗ red and plain");
        assert_eq!(line.painted(terminal(15, false)), "✗ red and plain");
        assert_eq!(line.painted(terminal(8, false)), "✗ red a…");
        assert_eq!(line.painted(terminal(3, true)), "\x1b[31m✗ \x1b[0m…");
        assert_eq!(line.plain(), "✗ red and plain");
    }

    #[test]
    fn where_there_is_only_ascii_nothing_else_is_written() {
        let line = Line::of(Style::Plain, "├─ ✗ db-3  1.1 → 1.2 … ü");
        let ascii = |width| line.painted(Terminal { width, colours: false, unicode: false });
        assert_eq!(ascii(80), "|- x db-3  1.1 -> 1.2 ... ?");
        assert_eq!(ascii(12), "|- x db-3...");
        for (values, utf8) in [
            (vec![], true),
            (vec![("LANG", "C.UTF-8")], true),
            (vec![("LANG", "de_DE.utf8")], true),
            (vec![("LANG", "C")], false),
            (vec![("LC_ALL", "POSIX"), ("LANG", "en_US.UTF-8")], false),
            (vec![("LC_ALL", ""), ("LC_CTYPE", "en_US.UTF-8"), ("LANG", "C")], true),
        ] {
            let variable = |name: &str| values.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
            assert_eq!(is_utf8(variable), utf8, "{values:?}");
        }
    }

    #[test]
    fn what_would_steer_a_terminal_is_not_written() {
        let line = Line::of(Style::Plain, "a\x1b[2J\nb\tc");
        assert_eq!(line.painted(terminal(80, true)), "a [2J b c");
    }

    #[test]
    fn a_line_is_folded_between_words_under_an_indent() {
        let mut line = Line::of(Style::Dim, "  one two ");
        line.add(Style::Red, "three four");
        let folded: Vec<String> = line.folded(terminal(10, false), 2).iter().map(Line::plain).collect();
        assert_eq!(folded, ["  one two", "  three", "  four"]);
        let mut line = Line::of(Style::Plain, "  (one, two");
        line.add(Style::Green, " ✓");
        line.add(Style::Plain, ", three");
        line.add(Style::Dim, " ○");
        line.add(Style::Plain, ")");
        let folded: Vec<String> = line.folded(terminal(10, false), 2).iter().map(Line::plain).collect();
        assert_eq!(folded, ["  (one,", "  two ✓,", "  three ○)"], "a sign stays with its word");
        assert_eq!(line.folded(terminal(80, false), 2).len(), 1);
    }
}
