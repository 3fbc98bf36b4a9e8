//! Parsers of parameter values. They return `None` for invalid text, and ignore spaces around it.

use std::time::Duration;

/// Parses a whole number like C's `strtol` with base 0: decimal, hexadecimal after `0x` or octal
/// after `0`, with an optional sign. Trailing characters are invalid.
pub fn integer(text: &str) -> Option<i128> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let value = magnitude(digits)?;
    Some(if negative { -value } else { value })
}

/// Parses `0`, `1`, `true`, `false`, `yes`, `no`, `on` and `off`, ignoring case.
pub fn flag(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

pub(super) fn int(text: &str) -> Option<i64> {
    integer(text)?.try_into().ok()
}

/// Parses a size in bytes: a whole number with an optional suffix `k`, `m` or `g` (powers of 1024)
/// in either case.
pub fn size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, shift) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    integer(number)?.checked_mul(1 << shift)?.try_into().ok()
}

/// Parses a duration: a whole number with the unit `ns`, `us`, `ms`, `s` or `m` (minutes). 0 needs
/// no unit.
pub fn time(text: &str) -> Option<Duration> {
    let text = text.trim();
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..unit_at].parse().ok()?;
    match &text[unit_at..] {
        "ns" => Some(Duration::from_nanos(number)),
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

fn magnitude(digits: &str) -> Option<i128> {
    match digits.strip_prefix('0') {
        Some("") | None => unsigned(digits, 10),
        Some(rest) => match rest.strip_prefix(['x', 'X']) {
            Some(hex) => unsigned(hex, 16),
            None => unsigned(rest, 8),
        },
    }
}

/// Parses digits without a sign. `from_str_radix` alone would accept a sign.
fn unsigned(digits: &str, radix: u32) -> Option<i128> {
    if !digits.starts_with(|c: char| c.is_digit(radix)) {
        return None;
    }
    i128::from_str_radix(digits, radix).ok()
}
