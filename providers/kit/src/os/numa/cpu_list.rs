//! `CpuList`: a set of processors or nodes, in the kernel's text form, such as `0-3,8`.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A set of numbers of processors or nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList {
    ranges: Vec<RangeInclusive<usize>>,
}

impl CpuList {
    /// Whether the set has this number.
    pub fn contains(&self, number: usize) -> bool {
        self.ranges.iter().any(|range| range.contains(&number))
    }

    /// Whether the set has no number.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the numbers below `limit`, in the order of the list.
    pub(super) fn numbers_below(&self, limit: usize) -> impl Iterator<Item = usize> {
        let ranges = self.ranges.iter();
        ranges.flat_map(move |range| *range.start()..=(*range.end()).min(limit - 1))
    }

    /// Adds a number that is greater than all others.
    pub(super) fn push(&mut self, number: usize) {
        match self.ranges.last_mut() {
            Some(last) if *last.end() + 1 == number => *last = *last.start()..=number,
            _ => self.ranges.push(number..=number),
        }
    }
}

/// Parses the kernel's form: numbers and ranges, separated by commas. An empty text is the empty
/// set.
impl FromStr for CpuList {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let malformed = || {
            let reason = format!("{text:?} is not a list of numbers such as 0-3,8");
            io::Error::new(io::ErrorKind::InvalidData, reason)
        };
        let number = |text: &str| text.parse::<usize>().ok();
        let range = |item: &str| {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let range = number(first)?..=number(last)?;
            (!range.is_empty()).then_some(range)
        };
        let items = text.trim().split(',').filter(|item| !item.is_empty());
        let ranges: Option<Vec<_>> = items.map(range).collect();
        ranges.map(|ranges| Self { ranges }).ok_or_else(malformed)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_parsed_and_printed() {
        for (text, has, lacks) in [("0-3,8\n", 3, 4), ("5", 5, 0), ("0-1,3,6-7", 6, 2)] {
            let list: CpuList = text.parse().unwrap();
            assert!(list.contains(has) && !list.contains(lacks), "{text:?}");
            assert_eq!(list.to_string(), text.trim());
        }
        assert!("\n".parse::<CpuList>().unwrap().is_empty());
        for malformed in ["a", "1-", "3-1", "-2", "1-2-3"] {
            let error = malformed.parse::<CpuList>().unwrap_err();
            assert!(error.to_string().contains(malformed), "{error}");
        }
    }

    #[test]
    fn numbers_end_below_the_limit() {
        let list: CpuList = "1-2,9-4000000000".parse().unwrap();
        assert!(list.numbers_below(11).eq([1, 2, 9, 10]));
    }

    #[test]
    fn pushed_numbers_form_ranges() {
        let mut list = CpuList::default();
        [0, 1, 2, 5, 7, 8]
            .into_iter()
            .for_each(|cpu| list.push(cpu));
        assert_eq!(list.to_string(), "0-2,5,7-8");
    }
}
