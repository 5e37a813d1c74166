//! Normalises Kubernetes quantities to one text for each amount: `1000m` and `1`, `1Gi` and `1024Mi` are the same
//! amount. Amounts that the API server would cap (from 2^63) or round (below `1n`) still get different texts.

/// The maximum number of significant digits. With the largest binary suffix (2^60) the amount still fits into 128 bits;
/// a quantity with more digits is compared as text.
const MAX_DIGITS: usize = 18;
/// The maximum of the decimal exponent's absolute value.
const MAX_EXPONENT: i32 = 999;

const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const LARGE: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
const SMALL: [&str; 4] = ["", "m", "u", "n"];

/// The normalised text of an amount; `None` if the text is not a quantity, or has too many digits.
pub(super) fn normalised(text: &str) -> Option<String> {
    let Parsed { negative, amount, exponent } = parse(text)?;
    if amount == 0 {
        return Some("0".to_owned());
    }
    let sign = if negative { "-" } else { "" };
    Some(format!("{sign}{}", written(amount, exponent)))
}

/// One, in billionths.
pub const NANOS: i128 = 1_000_000_000;

/// The amount in billionths, rounded down; `None` if the text is not a quantity, or if the amount is too large.
#[must_use]
pub fn nanos(text: &str) -> Option<i128> {
    let Parsed { negative, amount, exponent } = parse(text)?;
    let (amount, power) = (i128::try_from(amount).ok()?, exponent + 9);
    let scale = 10_i128.checked_pow(power.unsigned_abs());
    let amount =
        if power < 0 { scale.map_or(0, |scale| amount / scale) } else { amount.checked_mul(scale?)? };
    Some(if negative { -amount } else { amount })
}

/// `amount * 10^exponent`.
struct Parsed {
    negative: bool,
    amount: u128,
    exponent: i32,
}

fn parse(text: &str) -> Option<Parsed> {
    let text = text.trim();
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, rest) = split_digits(unsigned);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (binary_power, decimal_power) = scale(suffix)?;

    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(Parsed { negative, amount: 0, exponent: 0 });
    }
    if significant.len() > MAX_DIGITS || fraction.len() > MAX_EXPONENT as usize {
        return None;
    }
    let trailing = i32::try_from(digits.len() - significant.len()).ok()?;
    let exponent = decimal_power + trailing - i32::try_from(fraction.len()).ok()?;
    let amount = significant.parse::<u128>().ok()? << binary_power;
    Some(Parsed { negative, amount, exponent })
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The power of two and the power of ten that a suffix stands for.
fn scale(suffix: &str) -> Option<(usize, i32)> {
    if let Some(index) = BINARY.iter().position(|s| *s == suffix) {
        return Some((10 * (index + 1), 0));
    }
    if let Some(index) = LARGE.iter().position(|s| *s == suffix) {
        return Some((0, 3 * index as i32));
    }
    if let Some(index) = SMALL.iter().position(|s| *s == suffix) {
        return Some((0, -3 * index as i32));
    }
    // `E` alone is exa and was found above.
    let exponent = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
    (-MAX_EXPONENT..=MAX_EXPONENT).contains(&exponent).then_some((0, exponent))
}

/// `amount * 10^exponent` as a whole number with a suffix, in as few digits as possible, since people read it in a
/// diff.
fn written(mut amount: u128, mut exponent: i32) -> String {
    while amount.is_multiple_of(10) {
        amount /= 10;
        exponent += 1;
    }
    let decimal = decimal(amount, exponent);
    let binary = binary(amount, exponent);
    match (decimal, binary) {
        (Some((number, suffix)), Some((fewer, binary_suffix))) => {
            if fewer.ilog10() < number.ilog10() {
                format!("{fewer}{binary_suffix}")
            } else {
                format!("{number}{suffix}")
            }
        }
        (Some((number, suffix)), None) => format!("{number}{suffix}"),
        (None, _) => format!("{amount}e{exponent}"),
    }
}

fn decimal(amount: u128, exponent: i32) -> Option<(u128, &'static str)> {
    let (suffix, left) = if exponent < 0 {
        let thousandths = (2 - exponent) / 3;
        (SMALL.get(thousandths as usize)?, exponent + 3 * thousandths)
    } else {
        let thousands = (exponent / 3).min(LARGE.len() as i32 - 1);
        (&LARGE[thousands as usize], exponent - 3 * thousands)
    };
    Some((shifted(amount, left)?, suffix))
}

fn binary(amount: u128, exponent: i32) -> Option<(u128, &'static str)> {
    let whole = shifted(amount, exponent)?;
    let index = (0..BINARY.len()).rev().find(|index| whole.is_multiple_of(1 << (10 * (index + 1))))?;
    Some((whole >> (10 * (index + 1)), BINARY[index]))
}

/// `amount * 10^exponent`, if that is a whole number and fits.
fn shifted(amount: u128, exponent: i32) -> Option<u128> {
    amount.checked_mul(10u128.checked_pow(u32::try_from(exponent).ok()?)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantity_is_parsed_in_nano_units() {
        for (text, expected) in [
            ("500m", Some(NANOS / 2)),
            ("0.1", Some(NANOS / 10)),
            ("2e3", Some(2000 * NANOS)),
            ("1.5Gi", Some(1536 * (1 << 20) * NANOS)),
            ("-1M", Some(-1_000_000 * NANOS)),
            ("0", Some(0)),
            ("1e-12", Some(0)),
            ("1e99", None),
            ("many", None),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn normalised_quantity_is_canonical_and_readable() {
        for (text, expected) in [
            ("1000m", "1"),
            ("1.0", "1"),
            ("0.1", "100m"),
            ("1500m", "1500m"),
            ("0.0000001", "100n"),
            ("1e-10", "1e-10"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1000Ki", "1024k"),
            ("10G", "10G"),
            ("100M", "100M"),
            ("1025Ki", "1025Ki"),
            ("1024", "1Ki"),
            ("1000", "1k"),
            ("1e18", "1E"),
            ("1e20", "100E"),
            ("1e60", "1e60"),
            ("0.1Gi", "107374182400m"),
            ("0.0001Ki", "102400u"),
            ("999999999999999999Ei", "999999999999999999Ei"),
            ("-2048", "-2Ki"),
            (" 1Gi ", "1Gi"),
            ("000000000000000000000.5", "500m"),
            ("0.000000000000000000000", "0"),
            ("100000000000000000000000", "100000E"),
        ] {
            assert_eq!(normalised(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn invalid_quantity_is_not_normalised() {
        for text in [
            "",
            " ",
            ".",
            "-",
            "+",
            "Gi",
            "m",
            "1GB",
            "1K",
            "1gi",
            "1 Gi",
            "1,5",
            "1e",
            "1e1.5",
            "e3",
            "0x10",
            "--1",
            "+-1",
            "1m1",
            "1.2.3",
            "NaN",
            "inf",
            "1ee3",
            "1e1000",
            "1e-1000",
            "1e99999999999",
            "٣",
            "1234567890123456789",
        ] {
            assert_eq!(normalised(text), None, "{text}");
        }
    }

    #[test]
    fn very_long_quantity_is_handled() {
        assert_eq!(normalised(&"9".repeat(100_000)), None);
        assert_eq!(normalised(&format!("0.{}1", "0".repeat(100_000))), None);
        assert_eq!(normalised(&format!("1{}", "0".repeat(100_000))).as_deref(), Some("1e100000"));
    }

    /// The same amount in billionths.
    fn billionths(number: u64, suffix: &str) -> u128 {
        let number = u128::from(number);
        match suffix {
            "n" => number,
            "u" => number * 1_000,
            "m" => number * 1_000_000,
            "" => number * 1_000_000_000,
            "k" => number * 1_000_000_000_000,
            "M" | "e6" => number * 1_000_000_000_000_000,
            "G" => number * 1_000_000_000_000_000_000,
            "Ki" => number * 1_024_000_000_000,
            "Mi" => number * 1_048_576_000_000_000,
            "Gi" => number * 1_073_741_824_000_000_000,
            other => unreachable!("{other}"),
        }
    }

    proptest! {
        #[test]
        fn quantities_normalise_equally_only_if_amounts_are_equal(
            a in 0..3000u64, b in 0..3000u64,
            x in prop::sample::select(vec!["n", "u", "m", "", "k", "M", "e6", "G", "Ki", "Mi", "Gi"]),
            y in prop::sample::select(vec!["n", "u", "m", "", "k", "M", "e6", "G", "Ki", "Mi", "Gi"]),
            scale in prop::sample::select(vec![1u64, 1000, 1024]),
        ) {
            // With a common factor, amounts are often equal.
            for (a, b) in [(a, b), (a, a * scale)] {
                let (one, other) = (normalised(&format!("{a}{x}")), normalised(&format!("{b}{y}")));
                prop_assert!(one.is_some());
                prop_assert_eq!(one == other, billionths(a, x) == billionths(b, y), "{}{} {}{}", a, x, b, y);
            }
        }

        #[test]
        fn normalising_a_quantity_is_idempotent(text in "[0-9]{1,17}(\\.[0-9]{0,9})?(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]|E-[0-9])?") {
            if let Some(once) = normalised(&text) {
                prop_assert!(normalised(&once).is_none_or(|twice| twice == once), "{} {}", text, once);
            }
        }
    }
}
