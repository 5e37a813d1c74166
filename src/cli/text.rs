//! Lines of text in colours. A line knows what it says and how, a look what can be seen of it.

/// How a piece of text looks, where there are colours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Style {
    /// As text is.
    Plain,
    /// Of headings.
    Bold,
    /// Of what is not looked at first.
    Dim,
    /// Of what failed.
    Red,
    /// Of what is as wanted.
    Green,
    /// Of what is on its way.
    Yellow,
    /// Of what is said about the story.
    #[cfg_attr(not(feature = "demo"), allow(dead_code, reason = "only the demo tells a story"))]
    Magenta,
    /// Of what is as it was.
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

/// What whoever reads can see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Look {
    /// How many columns there are.
    pub width: usize,
    /// Whether there are colours.
    pub colours: bool,
    /// Whether there is more than ASCII.
    pub unicode: bool,
}

impl Look {
    /// What is seen of standard output: as wide as its terminal; where there is none as `COLUMNS` says, or without an end.
    pub fn of_stdout() -> Self {
        let out = std::io::stdout();
        let terminal = terminal_size::terminal_size_of(&out).map(|(width, _)| usize::from(width.0));
        let asked = || std::env::var("COLUMNS").ok()?.parse().ok();
        Self {
            width: terminal.or_else(asked).filter(|width| *width > 0).unwrap_or(usize::MAX),
            colours: super::is_coloured(&out),
            unicode: is_utf8(|name| std::env::var(name).ok()),
        }
    }
}

/// Whether the locale has all of Unicode. Containers rarely say anything: then it is taken to.
fn is_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let said = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
    said.is_none_or(|locale| {
        let locale = locale.to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// What stands for a letter where there is nothing but ASCII.
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

/// A line, in pieces.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Line(Vec<(Style, String)>);

impl Line {
    /// A line of one piece.
    pub fn of(style: Style, text: impl Into<String>) -> Self {
        let mut line = Self::default();
        line.add(style, text);
        line
    }

    /// Adds a piece at the end. What would steer a terminal is taken out: kubelets and servers may say anything.
    pub fn add(&mut self, style: Style, text: impl Into<String>) {
        let text: String = text.into();
        let text = if text.contains(char::is_control) { text.replace(char::is_control, " ") } else { text };
        self.0.push((style, text));
    }

    /// The same with other words.
    pub fn put(&self, other: impl Fn(&str) -> String) -> Self {
        Self(self.0.iter().map(|(style, text)| (*style, other(text))).collect())
    }

    /// Its pieces.
    pub fn pieces(&self) -> &[(Style, String)] {
        &self.0
    }

    /// The whole of it without colours.
    pub fn plain(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect::<String>().trim_end().to_owned()
    }

    /// How many columns it takes.
    pub fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// The same in what can be shown.
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

    /// As much of it as there are columns for. What is cut ends in an ellipsis.
    pub fn cut(&self, look: Look) -> Self {
        let line = self.spelled(look.unicode);
        let ellipsis = if look.unicode { "…" } else { "..." };
        let fits = line.plain().chars().count() <= look.width;
        let mut room = if fits { look.width } else { look.width.saturating_sub(ellipsis.chars().count()) };
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

    /// As much of it as there are columns for, in colours if there are any.
    pub fn painted(&self, look: Look) -> String {
        let out: String =
            self.cut(look).0.iter().map(|(style, text)| paint(*style, text, look.colours)).collect();
        if look.colours { out } else { out.trim_end().to_owned() }
    }

    /// Its words, each with the blanks after it, in pieces. A piece that begins with one blank goes on with the word
    /// before it: a sign stays with what it is about.
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

    /// The same in as many lines as it takes, broken between words; those after the first begin with `indent` blanks.
    pub fn folded(&self, look: Look, indent: usize) -> Vec<Self> {
        let line = self.spelled(look.unicode);
        if line.width() <= look.width {
            return vec![line];
        }
        let (mut lines, mut now, mut column) = (Vec::new(), Self::default(), 0);
        for word in line.words() {
            let text: String = word.iter().map(|(_, text)| text.as_str()).collect();
            let long = text.trim_end().chars().count();
            if column > indent && column + long > look.width {
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

/// A line, folded between words where it is longer than `width` columns, under its own beginning. Colours take no room.
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

/// How many columns a text takes, without its colours.
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

/// Text in a colour, if there are any.
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

    fn look(width: usize, colours: bool) -> Look {
        Look { width, colours, unicode: true }
    }

    #[test]
    fn a_line_is_cut_by_what_is_seen_of_it() {
        let mut line = Line::of(Style::Red, "✗ red");
        line.add(Style::Plain, " and plain");
        assert_eq!(line.painted(look(80, false)), "✗ red and plain");
        assert_eq!(line.painted(look(15, false)), "✗ red and plain");
        assert_eq!(line.painted(look(8, false)), "✗ red a…");
        assert_eq!(line.painted(look(3, true)), "\x1b[31m✗ \x1b[0m…");
        assert_eq!(line.plain(), "✗ red and plain");
    }

    #[test]
    fn where_there_is_only_ascii_nothing_else_is_written() {
        let line = Line::of(Style::Plain, "├─ ✗ db-3  1.1 → 1.2 … ü");
        let ascii = |width| line.painted(Look { width, colours: false, unicode: false });
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
        assert_eq!(line.painted(look(80, true)), "a [2J b c");
    }

    #[test]
    fn a_line_is_folded_between_words_under_an_indent() {
        let mut line = Line::of(Style::Dim, "  one two ");
        line.add(Style::Red, "three four");
        let folded: Vec<String> = line.folded(look(10, false), 2).iter().map(Line::plain).collect();
        assert_eq!(folded, ["  one two", "  three", "  four"]);
        let mut line = Line::of(Style::Plain, "  (one, two");
        line.add(Style::Green, " ✓");
        line.add(Style::Plain, ", three");
        line.add(Style::Dim, " ○");
        line.add(Style::Plain, ")");
        let folded: Vec<String> = line.folded(look(10, false), 2).iter().map(Line::plain).collect();
        assert_eq!(folded, ["  (one,", "  two ✓,", "  three ○)"], "a sign stays with its word");
        assert_eq!(line.folded(look(80, false), 2).len(), 1);
    }
}
