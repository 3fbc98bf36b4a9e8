//! How long operations took: a histogram for each kind of operation and class of sizes, for whoever
//! asks for it.
//!
//! A class of times is a quarter of a doubling wide, from 32 ns to half a minute. What is said of a
//! part of the operations ([`Row::quantile`]) is right to the width of a class.

use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::Error;

use super::layout::{
    AT_ROWS, BUCKETS, Kind, LATENCY_WORDS, ROW_BUCKETS, ROW_LONGEST, ROW_TIME, ROW_WORDS, SIZES,
    Timed,
};
use super::seen::Head;
use super::sheet::{Sheet, now};

/// Times below this are one class.
const SHORTEST: u32 = 5;

/// The histograms of an endpoint. Any thread may add to them.
#[derive(Debug)]
pub struct Latency(Sheet<LATENCY_WORDS>);

impl Latency {
    /// Histograms for the endpoint of a provider that has this name.
    ///
    /// # Errors
    /// As [`super::Page::open`].
    pub fn open(provider: &str, name: &str) -> Result<Self, Error> {
        let sheet = Sheet::open(Kind::Latency, provider, now())?;
        sheet.set_name(name);
        Ok(Self(sheet))
    }

    /// Adds an operation of `len` bytes that took so many nanoseconds.
    pub fn add(&self, what: Timed, len: usize, nanoseconds: u64) {
        let at = row_at(what, class_of(len));
        let row = &self.0.words()[at..at + ROW_WORDS];
        row[ROW_TIME].fetch_add(nanoseconds, Ordering::Relaxed);
        row[ROW_LONGEST].fetch_max(nanoseconds, Ordering::Relaxed);
        row[ROW_BUCKETS + bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    /// What was added so far.
    pub fn rows(&self) -> Vec<Row> {
        let words = self.0.words().iter();
        let words: Vec<u64> = words
            .map(|it: &AtomicU64| it.load(Ordering::Relaxed))
            .collect();
        rows(&words)
    }
}

/// One histogram, of one kind of operation with sizes of one class.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which operations.
    pub what: Timed,
    /// The class of their sizes; see [`Self::sizes`].
    pub class: usize,
    /// How long all of them took together, in nanoseconds.
    pub total: u64,
    /// How long the longest one took.
    pub longest: u64,
    /// How many took how long, from the shortest times to the longest.
    pub buckets: [u64; BUCKETS],
}

impl Row {
    fn of(what: Timed, class: usize, words: &[u64]) -> Option<Self> {
        let buckets: [u64; BUCKETS] = words[ROW_BUCKETS..].try_into().ok()?;
        let row = Self {
            what,
            class,
            total: words[ROW_TIME],
            longest: words[ROW_LONGEST],
            buckets,
        };
        (row.count() > 0).then_some(row)
    }

    /// How many operations there were.
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .fold(0, |sum, it| sum.saturating_add(*it))
    }

    /// The fewest and the most bytes of an operation of this class.
    pub const fn sizes(&self) -> (u64, u64) {
        match self.class {
            0 => (0, 0),
            class if class == SIZES - 1 => (1 << (class - 1), u64::MAX),
            class => (1 << (class - 1), (1 << class) - 1),
        }
    }

    /// How long one took on average, in nanoseconds.
    pub fn mean(&self) -> u64 {
        self.total / self.count().max(1)
    }

    /// The time within which this part of the operations was done, `0.5` for half of them.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.count() as f64 * part).max(1.0);
        let mut before = 0.0;
        for (at, &number) in self.buckets.iter().enumerate() {
            let number = number as f64;
            if number > 0.0 && before + number >= wanted {
                let (from, to) = (
                    bound(at) as f64,
                    (bound(at + 1) as f64).min(self.longest as f64),
                );
                let time = from + (to - from).max(0.0) * (wanted - before) / number;
                return (time as u64).min(self.longest);
            }
            before += number;
        }
        self.longest
    }

    /// Adds what another row of the same kind and class says.
    pub fn merge(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        self.longest = self.longest.max(other.longest);
        for (own, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = own.saturating_add(*other);
        }
    }
}

/// Histograms, as somebody else reads them.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Whose they are.
    pub head: Head,
    /// Those that are not empty.
    pub rows: Vec<Row>,
}

impl Latencies {
    /// Reads the copy of a sheet. `None` for what is none of this version.
    pub fn of(words: &[u64; LATENCY_WORDS]) -> Option<Self> {
        Some(Self {
            head: Head::of(Kind::Latency, words)?,
            rows: rows(words),
        })
    }
}

fn rows(words: &[u64]) -> Vec<Row> {
    let kinds = Timed::ALL.into_iter();
    let all = kinds.flat_map(|what| (0..SIZES).map(move |class| (what, class)));
    let rows = all.filter_map(|(what, class)| {
        let at = row_at(what, class);
        Row::of(what, class, &words[at..at + ROW_WORDS])
    });
    rows.collect()
}

const fn row_at(what: Timed, class: usize) -> usize {
    AT_ROWS + (what as usize * SIZES + class) * ROW_WORDS
}

fn class_of(len: usize) -> usize {
    ((usize::BITS - len.leading_zeros()) as usize).min(SIZES - 1)
}

fn bucket_of(nanoseconds: u64) -> usize {
    let Some(octave) = nanoseconds
        .checked_ilog2()
        .and_then(|it| it.checked_sub(SHORTEST))
    else {
        return 0;
    };
    let quarter = nanoseconds >> (octave + SHORTEST - 2) & 3;
    (1 + 4 * octave as usize + quarter as usize).min(BUCKETS - 1)
}

/// The shortest time of a class, in nanoseconds.
pub const fn bound(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(1) else {
        return 0;
    };
    (4 + above as u64 % 4) << (above / 4 + SHORTEST as usize - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_class_whose_bounds_are_around_it() {
        let times = (0..40).flat_map(|bit| (0..9).map(move |part| (1_u64 << bit) * (8 + part) / 8));
        for time in times.chain([0, u64::MAX]) {
            let bucket = bucket_of(time);
            assert!(bound(bucket) <= time, "{time} in {bucket}");
            assert!(
                bucket == BUCKETS - 1 || time < bound(bucket + 1),
                "{time} in {bucket}"
            );
        }
    }

    #[test]
    fn sizes_are_classed_by_doublings() {
        for (len, from, to) in [
            (0, 0, 0),
            (1, 1, 1),
            (8, 8, 15),
            (15, 8, 15),
            (4096, 4096, 8191),
        ] {
            let latency = Latency::open("test", "1:0").unwrap();
            latency.add(Timed::Read, len, 100);
            let [row] = &latency.rows()[..] else {
                panic!("one row");
            };
            assert_eq!((row.what, row.sizes()), (Timed::Read, (from, to)), "{len}");
        }
        assert_eq!(class_of(usize::MAX), SIZES - 1);
    }

    #[test]
    fn quantiles_are_right_to_the_width_of_a_class() {
        let latency = Latency::open("test", "1:0").unwrap();
        for time in 1..=1000 {
            latency.add(Timed::Send, 8, time * 1000);
        }
        let row = latency.rows().remove(0);
        assert_eq!(
            (row.count(), row.mean(), row.longest),
            (1000, 500_500, 1_000_000)
        );
        for (part, wanted) in [
            (0.1, 100_000),
            (0.5, 500_000),
            (0.99, 990_000),
            (1.0, 1_000_000),
        ] {
            let got = row.quantile(part);
            assert!(
                got.abs_diff(wanted) <= wanted / 5,
                "{part}: {got} and not {wanted}"
            );
        }
        let mut both = row.clone();
        both.merge(&row);
        assert_eq!((both.count(), both.total), (2000, 2 * row.total));
    }
}
