//! Numbers in short form.

/// Formats a count or a rate with three digits and a letter: `999`, `1.23k`, `45.6M`.
pub(crate) fn count(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// Formats a number of bytes with three digits and a letter: `999B`, `1.23K`.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "K", "M", "G", "T", "P"])
}

/// Formats a time in nanoseconds with three digits and a unit: `999ns`, `1.23us`, `33.0s`.
pub(crate) fn time(nanoseconds: f64) -> String {
    scaled(nanoseconds, 1000.0, &["ns", "us", "ms", "s", "ks"])
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}{}", units[unit])
}

/// Formats an age in seconds: `0.4s`, `12s`, `3m20s`, `5h`.
pub(crate) fn age(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1}s"),
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{}m{:02}s", s as u64 / 60, s as u64 % 60),
        s => format!("{:.0}h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_three_digits() {
        let table = [
            (0.0, "0", "0B"),
            (999.0, "999", "999B"),
            (999.6, "1.00k", "0.98K"),
            (1024.0, "1.02k", "1.00K"),
            (45_600_000.0, "45.6M", "43.5M"),
            (999_999.0, "1.00M", "977K"),
        ];
        for (value, as_count, as_bytes) in table {
            assert_eq!(count(value), as_count);
            assert_eq!(bytes(value), as_bytes);
        }
        assert_eq!(age(0.44), "0.4s");
        assert_eq!(age(75.0), "75s");
        assert_eq!(age(200.0), "3m20s");
    }
}
