//! Quantities (`500m`, `1Gi`, `2e3`) in the canonical form that Go writes.

use std::cmp::Ordering;

/// The API server's message for an invalid quantity.
const REFUSED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Style {
    Decimal,
    Binary,
    Exponent,
}

/// A quantity in billionths, Go's own resolution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    nanos: i128,
    style: Style,
}

const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// Parses a quantity.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let digits_end = text
            .char_indices()
            .find(|(i, c)| !(c.is_ascii_digit() || *c == '.' || (*i == 0 && matches!(c, '+' | '-'))))
            .map_or(text.len(), |(i, _)| i);
        let (number, suffix) = text.split_at(digits_end);
        let (negative, digits) = match number.as_bytes().first() {
            Some(b'-') => (true, &number[1..]),
            Some(b'+') => (false, &number[1..]),
            _ => (false, number),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(REFUSED.into());
        }
        let (style, binary, exponent) = scale(suffix).ok_or(REFUSED)?;
        let mut nanos = 0_i128;
        for digit in whole.bytes() {
            nanos = nanos.saturating_mul(10).saturating_add(i128::from(digit - b'0') * NANO);
        }
        // At full precision, so that 0.5Gi is exact.
        let mut fraction_nanos = 0_i128;
        let mut unit = NANO * NANO / 10;
        for digit in fraction.bytes() {
            fraction_nanos += i128::from(digit - b'0') * unit;
            unit /= 10;
        }
        nanos =
            scaled(nanos, binary, exponent).saturating_add(scaled(fraction_nanos, binary, exponent) / NANO);
        Ok(Self { nanos: if negative { -nanos } else { nanos }, style })
    }

    /// The canonical form, which the server returns.
    pub(crate) fn canonical(text: &str) -> Result<String, String> {
        Self::parse(text).map(|quantity| quantity.to_string())
    }

    /// The value in thousandths, the unit of CPU.
    pub(crate) fn millis(&self) -> i128 {
        self.nanos / 1_000_000
    }

    /// True if it is below zero.
    pub(crate) fn is_negative(&self) -> bool {
        self.nanos < 0
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.nanos.partial_cmp(&other.nanos)
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.style == Style::Binary && self.nanos % NANO == 0 && self.nanos.abs() >= 1024 * NANO {
            let mut count = self.nanos / NANO;
            let mut index = 0;
            while index < BINARY.len() - 1 && count % 1024 == 0 {
                count /= 1024;
                index += 1;
            }
            return write!(f, "{count}{}", BINARY[index]);
        }
        let mut count = self.nanos;
        let mut power = -9;
        while power < 18 && count % 1000 == 0 {
            count /= 1000;
            power += 3;
        }
        match (self.style, power) {
            (Style::Exponent, 0) => write!(f, "{count}"),
            (Style::Exponent, power) => write!(f, "{count}e{power}"),
            (_, power) => write!(f, "{count}{}", DECIMAL[((power + 9) / 3) as usize]),
        }
    }
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// A suffix as its style, its power of 1024 and its power of 10.
fn scale(suffix: &str) -> Option<(Style, u32, i32)> {
    if let Some(index) = BINARY.iter().skip(1).position(|s| *s == suffix) {
        return Some((Style::Binary, index as u32 + 1, 0));
    }
    if let Some(index) = DECIMAL.iter().position(|s| *s == suffix) {
        return Some((Style::Decimal, 0, index as i32 * 3 - 9));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((Style::Exponent, 0, exponent.parse().ok().filter(|e: &i32| (-18..=18).contains(e))?))
}

fn scaled(nanos: i128, binary: u32, exponent: i32) -> i128 {
    let shifted = nanos.saturating_mul(1024_i128.pow(binary));
    let factor = 10_i128.pow(exponent.unsigned_abs());
    if exponent >= 0 {
        return shifted.saturating_mul(factor);
    }
    // Go rounds away from zero.
    let quotient = shifted / factor;
    if shifted % factor == 0 { quotient } else { quotient + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_take_the_go_canonical_form() {
        for (text, canonical) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1000", "1k"),
            ("1e3", "1e3"),
            ("0", "0"),
            ("128Ki", "128Ki"),
            ("100", "100"),
        ] {
            assert_eq!(Quantity::canonical(text).as_deref(), Ok(canonical), "{text}");
        }
    }

    #[test]
    fn malformed_quantities_are_rejected() {
        for text in ["", "lots", "1Gib", "1.2.3", "--1", "1 Gi"] {
            assert_eq!(Quantity::canonical(text).err().as_deref(), Some(REFUSED), "{text}");
        }
    }
}
