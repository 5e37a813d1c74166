//! One text for each Kubernetes quantity: `1000m` and `1`, `1Gi` and `1024Mi` are the same amount.

/// The most significant digits that are read. With the largest binary suffix (2^60) the amount still fits
/// into 128 bits; what has more digits is compared as text.
const MAX_DIGITS: usize = 18;
/// The largest decimal exponent that is read, either way.
const MAX_EXPONENT: i32 = 999;

const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const LARGE: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
const SMALL: [&str; 4] = ["", "m", "u", "n"];

/// The one text of this amount, or `None` where the text is no quantity.
pub(super) fn normalised(text: &str) -> Option<String> {
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
        return Some("0".to_owned());
    }
    if significant.len() > MAX_DIGITS || fraction.len() > MAX_EXPONENT as usize {
        return None;
    }
    let trailing = i32::try_from(digits.len() - significant.len()).ok()?;
    let exponent = decimal_power + trailing - i32::try_from(fraction.len()).ok()?;
    let amount = significant.parse::<u128>().ok()? << binary_power;
    let sign = if negative { "-" } else { "" };
    Some(format!("{sign}{}", written(amount, exponent)))
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

/// `amount * 10^exponent` with the largest suffix that leaves a whole number: people read these in a diff.
fn written(mut amount: u128, mut exponent: i32) -> String {
    while amount.is_multiple_of(10) {
        amount /= 10;
        exponent += 1;
    }
    let shifted =
        |by: i32| 10u128.checked_pow(u32::try_from(by).ok()?).and_then(|factor| amount.checked_mul(factor));
    if exponent >= 0 {
        let Some(whole) = shifted(exponent) else {
            return format!("{amount}e{exponent}");
        };
        let binary = (1..=BINARY.len()).rev().find(|power| whole.is_multiple_of(1 << (10 * power)));
        if let Some(power) = binary {
            return format!("{}{}", whole >> (10 * power), BINARY[power - 1]);
        }
        let thousands = (exponent / 3).min(LARGE.len() as i32 - 1);
        if let Some(number) = shifted(exponent - 3 * thousands) {
            return format!("{number}{}", LARGE[thousands as usize]);
        }
    } else {
        let thousandths = (2 - exponent) / 3;
        if let (Some(suffix), Some(number)) =
            (SMALL.get(thousandths as usize), shifted(3 * thousandths + exponent))
        {
            return format!("{number}{suffix}");
        }
    }
    format!("{amount}e{exponent}")
}
