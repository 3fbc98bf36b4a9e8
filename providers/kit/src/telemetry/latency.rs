//! Latency of operations: one histogram for each kind of operation and size class, for programs
//! that request it.
//!
//! A bucket is a quarter of a doubling wide, from 32 ns to half a minute. [`Histogram::quantile`]
//! is exact to the width of a bucket.

use std::sync::atomic::{AtomicU64, Ordering};

use selvedge::Error;

use super::layout::{
    AT_HISTOGRAMS, BUCKETS, HISTOGRAM_BUCKETS, HISTOGRAM_LONGEST, HISTOGRAM_TOTAL, HISTOGRAM_WORDS,
    LATENCY_WORDS, PageKind, SIZES, TimedOp,
};
use super::page_copy::PageHeader;
use super::shared_words::{SharedWords, now};

/// The exponent of the shortest time that does not share its bucket with all shorter ones.
const SHORTEST: u32 = 5;

/// Records the latencies of an endpoint. Any thread may record.
#[derive(Debug)]
pub struct LatencyRecorder(SharedWords<LATENCY_WORDS>);

impl LatencyRecorder {
    /// Opens histograms for the endpoint of a provider that has this name.
    ///
    /// # Errors
    /// As [`super::StatsPage::open`].
    pub fn open(provider: &str, name: &str) -> Result<Self, Error> {
        let page = SharedWords::open(PageKind::Latency, provider, now())?;
        page.set_name(name);
        Ok(Self(page))
    }

    /// Adds an operation of `len` bytes that took this many nanoseconds.
    pub fn record(&self, op: TimedOp, len: usize, nanoseconds: u64) {
        let offset = histogram_offset(op, size_class_of(len));
        let histogram = &self.0.words()[offset..offset + HISTOGRAM_WORDS];
        histogram[HISTOGRAM_TOTAL].fetch_add(nanoseconds, Ordering::Relaxed);
        histogram[HISTOGRAM_LONGEST].fetch_max(nanoseconds, Ordering::Relaxed);
        histogram[HISTOGRAM_BUCKETS + bucket_of(nanoseconds)].fetch_add(1, Ordering::Relaxed);
    }

    /// The histograms that are not empty.
    pub fn histograms(&self) -> Vec<Histogram> {
        let words = self.0.words().iter();
        let words: Vec<u64> = words
            .map(|it: &AtomicU64| it.load(Ordering::Relaxed))
            .collect();
        histograms(&words)
    }
}

/// The histogram of one kind of operation in one size class.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// The kind of operation.
    pub op: TimedOp,
    /// The size class; see [`Self::sizes`].
    pub size_class: usize,
    /// The sum of all durations, in nanoseconds.
    pub total: u64,
    /// The longest duration, in nanoseconds.
    pub longest: u64,
    /// The number of operations in each bucket, shortest durations first.
    pub buckets: [u64; BUCKETS],
}

impl Histogram {
    fn parse(op: TimedOp, size_class: usize, words: &[u64]) -> Option<Self> {
        let buckets: [u64; BUCKETS] = words[HISTOGRAM_BUCKETS..].try_into().ok()?;
        let histogram = Self {
            op,
            size_class,
            total: words[HISTOGRAM_TOTAL],
            longest: words[HISTOGRAM_LONGEST],
            buckets,
        };
        (histogram.count() > 0).then_some(histogram)
    }

    /// The number of operations.
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .fold(0, |sum, it| sum.saturating_add(*it))
    }

    /// The least and the greatest size of an operation of this class, in bytes.
    pub const fn sizes(&self) -> (u64, u64) {
        match self.size_class {
            0 => (0, 0),
            size_class if size_class == SIZES - 1 => (1 << (size_class - 1), u64::MAX),
            size_class => (1 << (size_class - 1), (1 << size_class) - 1),
        }
    }

    /// The mean duration, in nanoseconds.
    pub fn mean(&self) -> u64 {
        self.total / self.count().max(1)
    }

    /// The duration that this fraction of the operations did not exceed, in nanoseconds: 0.5 gives
    /// the median.
    pub fn quantile(&self, fraction: f64) -> u64 {
        let wanted = (self.count() as f64 * fraction).max(1.0);
        let mut counted = 0.0;
        for (bucket, &number) in self.buckets.iter().enumerate() {
            let number = number as f64;
            if number > 0.0 && counted + number >= wanted {
                let (start, end) = (
                    bucket_start(bucket) as f64,
                    (bucket_start(bucket + 1) as f64).min(self.longest as f64),
                );
                let time = start + (end - start).max(0.0) * (wanted - counted) / number;
                return (time as u64).min(self.longest);
            }
            counted += number;
        }
        self.longest
    }

    /// Adds another histogram of the same kind and class.
    pub fn merge(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        self.longest = self.longest.max(other.longest);
        for (bucket, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket = bucket.saturating_add(*other);
        }
    }
}

/// The histograms of an endpoint as a reader sees them.
#[derive(Clone, Debug)]
pub struct LatencyStats {
    /// The header of the page.
    pub header: PageHeader,
    /// The histograms that are not empty.
    pub histograms: Vec<Histogram>,
}

impl LatencyStats {
    /// Reads the copy of a page. `None` for a page of another kind or version.
    pub fn parse(words: &[u64; LATENCY_WORDS]) -> Option<Self> {
        Some(Self {
            header: PageHeader::parse(PageKind::Latency, words)?,
            histograms: histograms(words),
        })
    }
}

fn histograms(words: &[u64]) -> Vec<Histogram> {
    let kinds = TimedOp::ALL.into_iter();
    let all = kinds.flat_map(|op| (0..SIZES).map(move |size_class| (op, size_class)));
    let histograms = all.filter_map(|(op, size_class)| {
        let offset = histogram_offset(op, size_class);
        Histogram::parse(op, size_class, &words[offset..offset + HISTOGRAM_WORDS])
    });
    histograms.collect()
}

const fn histogram_offset(op: TimedOp, size_class: usize) -> usize {
    AT_HISTOGRAMS + (op as usize * SIZES + size_class) * HISTOGRAM_WORDS
}

fn size_class_of(len: usize) -> usize {
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

/// The shortest duration of a bucket, in nanoseconds.
pub const fn bucket_start(bucket: usize) -> u64 {
    let Some(index) = bucket.checked_sub(1) else {
        return 0;
    };
    (4 + index as u64 % 4) << (index / 4 + SHORTEST as usize - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_class_whose_bounds_are_around_it() {
        let times =
            (0..40).flat_map(|bit| (0..9).map(move |fraction| (1_u64 << bit) * (8 + fraction) / 8));
        for time in times.chain([0, u64::MAX]) {
            let bucket = bucket_of(time);
            assert!(bucket_start(bucket) <= time, "{time} in {bucket}");
            assert!(
                bucket == BUCKETS - 1 || time < bucket_start(bucket + 1),
                "{time} in {bucket}"
            );
        }
    }

    #[test]
    fn sizes_are_classed_by_doublings() {
        for (len, least, greatest) in [
            (0, 0, 0),
            (1, 1, 1),
            (8, 8, 15),
            (15, 8, 15),
            (4096, 4096, 8191),
        ] {
            let latency = LatencyRecorder::open("test", "1:0").unwrap();
            latency.record(TimedOp::Read, len, 100);
            let [histogram] = &latency.histograms()[..] else {
                panic!("not one histogram");
            };
            assert_eq!(
                (histogram.op, histogram.sizes()),
                (TimedOp::Read, (least, greatest)),
                "{len}"
            );
        }
        assert_eq!(size_class_of(usize::MAX), SIZES - 1);
    }

    #[test]
    fn quantiles_are_right_to_the_width_of_a_class() {
        let latency = LatencyRecorder::open("test", "1:0").unwrap();
        for time in 1..=1000 {
            latency.record(TimedOp::Send, 8, time * 1000);
        }
        let histogram = latency.histograms().remove(0);
        assert_eq!(
            (histogram.count(), histogram.mean(), histogram.longest),
            (1000, 500_500, 1_000_000)
        );
        for (fraction, wanted) in [
            (0.1, 100_000),
            (0.5, 500_000),
            (0.99, 990_000),
            (1.0, 1_000_000),
        ] {
            let got = histogram.quantile(fraction);
            assert!(
                got.abs_diff(wanted) <= wanted / 5,
                "{fraction}: {got} and not {wanted}"
            );
        }
        let mut both = histogram.clone();
        both.merge(&histogram);
        assert_eq!((both.count(), both.total), (2000, 2 * histogram.total));
    }
}
