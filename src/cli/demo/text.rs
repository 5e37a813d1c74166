//! Lines of text in colours. Pure: a line knows what it says and how, the screen how wide it is.

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

/// A line, in pieces.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Line(Vec<(Style, String)>);

impl Line {
    /// A line of one piece.
    pub fn of(style: Style, text: impl Into<String>) -> Self {
        Self(vec![(style, text.into())])
    }

    /// Adds a piece at the end.
    pub fn add(&mut self, style: Style, text: impl Into<String>) {
        self.0.push((style, text.into()));
    }

    /// The whole of it without colours.
    pub fn plain(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect::<String>().trim_end().to_owned()
    }

    /// As much of it as `width` columns hold, in colours if there are any. What is cut ends in an ellipsis.
    pub fn painted(&self, width: usize, colours: bool) -> String {
        let fits = self.plain().chars().count() <= width;
        let mut room = if fits { width } else { width.saturating_sub(1) };
        let mut out = String::new();
        for (style, text) in &self.0 {
            let cut: String = text.chars().take(room).collect();
            room -= cut.chars().count();
            if cut.is_empty() {
                continue;
            }
            out.push_str(&paint(*style, &cut, colours));
        }
        if !fits {
            out.push('…');
        }
        if colours { out } else { out.trim_end().to_owned() }
    }
}

/// A line, folded between words where it is longer than `width` columns, under its own beginning. Colours take no room.
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

    #[test]
    fn a_line_is_cut_by_what_is_seen_of_it() {
        let mut line = Line::of(Style::Red, "✗ red");
        line.add(Style::Plain, " and plain");
        assert_eq!(line.painted(80, false), "✗ red and plain");
        assert_eq!(line.painted(15, false), "✗ red and plain");
        assert_eq!(line.painted(8, false), "✗ red a…");
        assert_eq!(line.painted(3, true), "\x1b[31m✗ \x1b[0m…");
        assert_eq!(line.plain(), "✗ red and plain");
    }
}
