//! Message sizes on the command line.

use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};

use crate::fabric::MAX_MESSAGE_SIZE;

/// A list of message sizes in bytes, ascending and without repetition.
///
/// Its text is `8`, `4k` or `1m`, a list `1,64,4k`, or a range of powers of two `1..4m` with both
/// bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Vec<usize>);

impl Sizes {
    /// The powers of two from `first` to `last`, and `last` itself.
    pub fn powers(first: usize, last: usize) -> Self {
        let mut sizes: Vec<_> =
            std::iter::successors(Some(first.max(1)), |size| size.checked_mul(2))
                .take_while(|&size| size < last)
                .collect();
        sizes.push(last);
        Self(sizes)
    }

    /// The sizes.
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// The largest size.
    pub fn largest(&self) -> usize {
        self.0.last().copied().unwrap_or(0)
    }
}

impl FromStr for Sizes {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                Some((first, last)) => sizes.extend(range(first, last)?),
                None => sizes.push(parse(part)?),
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(Self(sizes))
    }
}

/// Formats a size in the syntax of [`Sizes`]: `4k` for 4096.
pub fn text(size: usize) -> String {
    for (unit, suffix) in [(1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")] {
        if size >= unit && size.is_multiple_of(unit) {
            return format!("{}{suffix}", size / unit);
        }
    }
    size.to_string()
}

fn range(first: &str, last: &str) -> anyhow::Result<Vec<usize>> {
    let (first, last) = (parse(first)?, parse(last)?);
    ensure!(
        first <= last,
        "size range {first}..{last} is descending: write the smaller size first"
    );
    Ok(Sizes::powers(first, last).0)
}

fn parse(text: &str) -> anyhow::Result<usize> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, unit) = match text.chars().last() {
        Some('k') => (&text[..text.len() - 1], 1 << 10),
        Some('m') => (&text[..text.len() - 1], 1 << 20),
        Some('g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text.as_str(), 1_usize),
    };
    let count: usize = digits.parse().with_context(|| {
        format!("{text:?} is not a size: write 64, 4k, 1m, a list 8,4k or a range 1..4m")
    })?;
    match count.checked_mul(unit) {
        Some(0) => bail!("size {text:?} is too small: the smallest message has 1 byte"),
        Some(size) if size <= MAX_MESSAGE_SIZE => Ok(size),
        _ => bail!(
            "size {text:?} is above the largest size, {}",
            self::text(MAX_MESSAGE_SIZE)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<usize> {
        text.parse::<Sizes>().unwrap().0
    }

    #[test]
    fn units_lists_and_ranges_are_read() {
        assert_eq!(sizes("8"), [8]);
        assert_eq!(sizes("4k,1M,8,8"), [8, 4096, 1 << 20]);
        assert_eq!(sizes("1..8"), [1, 2, 4, 8]);
        assert_eq!(sizes("3..20"), [3, 6, 12, 20]);
    }

    #[test]
    fn a_size_is_written_as_it_is_read() {
        for size in [1, 56, 1024, 1536, 4 << 20] {
            assert_eq!(sizes(&text(size)), [size]);
        }
    }

    #[test]
    fn bad_sizes_are_refused_with_their_text() {
        for bad in ["", "0", "x", "1..", "9..3", "1t", "-1", "999999999g", "65m"] {
            let error = bad.parse::<Sizes>().unwrap_err().to_string();
            assert!(error.contains("size"), "{bad}: {error}");
        }
    }
}
