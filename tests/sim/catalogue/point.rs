//! The identity of a run: a scenario, a fault, the point at which it strikes, and a seed. One line names it and
//! replays it.

use std::fmt;
use std::str::FromStr;

/// A fault and its point.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Strike {
    /// The fault's name in the table.
    pub fault: String,
    /// The write, call, event or node at which it strikes, from 1 (nodes from 0).
    pub at: u32,
}

/// One run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Point {
    pub scenario: String,
    /// Empty: a clean run.
    pub strikes: Vec<Strike>,
    pub seed: u64,
}

impl Point {
    pub fn clean(scenario: &str, seed: u64) -> Self {
        Self { scenario: scenario.to_owned(), strikes: Vec::new(), seed }
    }

    pub fn struck(scenario: &str, fault: &str, at: u32, seed: u64) -> Self {
        let strikes = vec![Strike { fault: fault.to_owned(), at }];
        Self { scenario: scenario.to_owned(), strikes, seed }
    }

    /// The command that replays it, with its trace.
    pub fn command(&self) -> String {
        format!("WINDLASS_REPLAY=\"{self}\" cargo test --test sim replay -- --nocapture")
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.scenario)?;
        for strike in &self.strikes {
            write!(f, " {} {}", strike.fault, strike.at)?;
        }
        write!(f, " seed={}", self.seed)
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let scenario = words.next().ok_or("a scenario is missing")?.to_owned();
        let (mut strikes, mut seed) = (Vec::new(), 1);
        while let Some(word) = words.next() {
            if let Some(number) = word.strip_prefix("seed=") {
                seed = number.parse().map_err(|_| format!("{number:?} is no seed"))?;
                continue;
            }
            let at = words.next().ok_or_else(|| format!("{word} where?"))?;
            let at = at.parse().map_err(|_| format!("{at:?} is no point"))?;
            strikes.push(Strike { fault: word.to_owned(), at });
        }
        Ok(Self { scenario, strikes, seed })
    }
}

#[test]
fn point_round_trips_through_its_text_form() {
    let mut point = Point::struck("in-place/image/3", "F1-after", 17, 5);
    assert_eq!(point.to_string(), "in-place/image/3 F1-after 17 seed=5");
    point.strikes.push(Strike { fault: "F5-once".to_owned(), at: 2 });
    assert_eq!(point.to_string().parse(), Ok(point));
    assert!("".parse::<Point>().is_err());
    assert!("in-place/image/3 F1-after".parse::<Point>().is_err());
}
