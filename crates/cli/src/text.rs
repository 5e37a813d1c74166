//! Output to a terminal: its width, colours and character set.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;
use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// A line, in styled pieces.
pub type Line = ratatui::text::Line<'static>;

/// A blank at which a line is not wrapped.
pub const NO_BREAK: char = '\u{a0}';

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

    /// The line in the supported character set. Control characters are removed: kubelets and servers may send any
    /// text.
    pub fn spelled(self, line: &Line) -> Line {
        let spell = |letter: char| match letter {
            letter if letter.is_control() => " ".to_owned(),
            letter if letter.is_ascii() || self.unicode => letter.to_string(),
            letter => plain_letter(letter).to_owned(),
        };
        mapped(line, |text| text.chars().map(spell).collect())
    }

    /// Truncates to the terminal's width; a truncated line ends in an ellipsis.
    pub fn cut(self, line: &Line) -> Line {
        let line = mapped(&self.spelled(line), |text| text.replace(NO_BREAK, " "));
        if line.to_string().trim_end().chars().count() <= self.width {
            return line;
        }
        let ellipsis = if self.unicode { "…" } else { "..." };
        let mut room = self.width.saturating_sub(ellipsis.chars().count());
        let mut out = Line::default();
        for span in line.spans {
            let text: String = span.content.chars().take(room).collect();
            room -= text.chars().count();
            out.push_span(Span::styled(text, span.style));
        }
        out.push_span(ellipsis);
        out
    }

    /// Truncated, with escape sequences for its styles.
    pub fn painted(self, line: &Line) -> String {
        let spans = self.cut(line).spans;
        let out: String = spans.iter().map(|span| paint(span.style, &span.content, self.colours)).collect();
        if self.colours { out } else { out.trim_end().to_owned() }
    }

    /// Wraps between words; continuation lines are indented by `indent` blanks.
    pub fn folded(self, line: &Line, indent: usize) -> Vec<Line> {
        let line = self.spelled(line);
        let letters: Vec<(char, Style)> = line
            .spans
            .iter()
            .flat_map(|span| span.content.chars().map(|letter| (letter, span.style)))
            .collect();
        let (mut rest, mut lines) = (&letters[..], Vec::new());
        for row in textwrap::wrap(&line.to_string(), between_words(self.width, &" ".repeat(indent))) {
            let blanks = if lines.is_empty() { 0 } else { indent };
            let (now, later) = rest.split_at(row.chars().count() - blanks);
            let mut line = Line::from(" ".repeat(blanks));
            for piece in now.chunk_by(|one, next| one.1 == next.1) {
                let text: String = piece.iter().map(|(letter, _)| letter).collect();
                line.push_span(Span::styled(text, piece[0].1));
            }
            lines.push(line);
            rest = &later[later.iter().take_while(|(letter, _)| *letter == ' ').count()..];
        }
        lines
    }
}

fn between_words(width: usize, indent: &str) -> Options<'_> {
    Options::new(width)
        .subsequent_indent(indent)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
}

/// The same line with each text mapped.
pub fn mapped(line: &Line, map: impl Fn(&str) -> String) -> Line {
    line.iter().map(|span| Span::styled(map(&span.content), span.style)).collect()
}

/// Wraps a line that is longer than `width` columns, aligned with its own indentation. Escape sequences count as
/// zero.
#[cfg_attr(not(feature = "demo"), allow(dead_code, reason = "only used by the demo"))]
pub fn wrapped(line: &str, width: usize) -> String {
    let indent = line.chars().take_while(|c| matches!(c, ' ' | '▸')).count();
    textwrap::fill(line, between_words(width, &" ".repeat(indent)))
}

/// The text with escape sequences for the style, if `colours`.
pub fn paint(style: Style, text: &str, colours: bool) -> String {
    let code = match style.fg {
        Some(Color::Red) => "31",
        Some(Color::Green) => "32",
        Some(Color::Yellow) => "33",
        Some(Color::Magenta) => "35",
        Some(Color::Cyan) => "36",
        _ if style.add_modifier.contains(Modifier::BOLD) => "1",
        _ if style.add_modifier.contains(Modifier::DIM) => "2",
        _ => "",
    };
    if !colours || code.is_empty() || text.is_empty() {
        return text.to_owned();
    }
    format!("\x1b[{code}m{text}\x1b[0m")
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
        NO_BREAK => "\u{a0}",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use ratatui::style::Stylize;

    use super::*;

    #[test]
    fn wrapped_text_is_indented_under_its_beginning() {
        assert_eq!(wrapped("   ▸ one two three", 13), "   ▸ one two\n     three");
        assert_eq!(wrapped("short", 13), "short");
        assert_eq!(wrapped("a-word-that-is-too-long for it", 10), "a-word-that-is-too-long\nfor it");
        assert_eq!(wrapped("\x1b[35mone\x1b[0m two three", 7), "\x1b[35mone\x1b[0m two\nthree");
    }

    fn terminal(width: usize, colours: bool) -> Terminal {
        Terminal { width, colours, unicode: true }
    }

    #[test]
    fn line_is_truncated_by_visible_width() {
        let line = Line::from(vec!["✗ red".red(), " and plain".into()]);
        assert_eq!(terminal(80, false).painted(&line), "✗ red and plain");
        assert_eq!(terminal(15, false).painted(&line), "✗ red and plain");
        assert_eq!(terminal(8, false).painted(&line), "✗ red a…");
        assert_eq!(terminal(3, true).painted(&line), "\x1b[31m✗ \x1b[0m…");
    }

    #[test]
    fn non_utf8_locale_prints_ascii_only() {
        let line = Line::from("├─ ✗ db-3  1.1 → 1.2 … ü");
        let ascii = |width| Terminal { width, colours: false, unicode: false }.painted(&line);
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
    fn control_characters_are_not_printed() {
        assert_eq!(terminal(80, true).painted(&Line::from(Span::raw("a\x1b[2J\nb\tc"))), "a [2J b c");
    }

    #[test]
    fn folded_line_is_split_between_words_with_indent() {
        let folded = |line: &Line, width| {
            let lines = terminal(width, false).folded(line, 2);
            lines.iter().map(|line| terminal(80, true).painted(line)).collect::<Vec<_>>()
        };
        let line = Line::from(vec!["  one two ".dim(), "three four".red()]);
        assert_eq!(
            folded(&line, 10),
            ["\x1b[2m  one two\x1b[0m", "  \x1b[31mthree\x1b[0m", "  \x1b[31mfour\x1b[0m"]
        );
        let line = Line::from("  (one, two\u{a0}✓, three\u{a0}○)");
        assert_eq!(folded(&line, 10), ["  (one,", "  two ✓,", "  three ○)"], "a glyph stays with its word");
        assert_eq!(folded(&line, 80).len(), 1);
    }
}
