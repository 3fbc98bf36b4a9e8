//! Axes: the positions of values, and the labels beside them.

use crate::size;

/// The mapping of values to positions along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Sizes in bytes: powers of two.
    Bytes,
    /// Times in nanoseconds: powers of ten.
    Nanoseconds,
    /// Rates in bytes per second: powers of ten.
    BytesPerSecond,
    /// Rates per second: powers of ten.
    PerSecond,
    /// Shares below one, on a scale of nines.
    Nines,
}

/// A scale with its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    scale: Scale,
    /// The label of the axis.
    pub label: &'static str,
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis that contains all of these values, except those that have no finite position.
    pub fn over(scale: Scale, label: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let positions = values.map(|value| scale.position(value));
        let (low, high) = positions.filter(|position| position.is_finite()).fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(low, high), position| (low.min(position), high.max(position)),
        );
        let (low, high) = match low <= high {
            true => scale.widen(low, high),
            false => (0.0, 1.0),
        };
        Self {
            scale,
            label,
            low,
            high,
        }
    }

    /// Position of a value, from 0 to 1; not finite for a value without a position.
    pub fn at(&self, value: f64) -> f64 {
        (self.scale.position(value) - self.low) / (self.high - self.low)
    }

    /// The labelled values with their texts, `most` at most.
    pub fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let steps: &[f64] = match self.scale {
            Scale::Bytes => &[1.0, 2.0, 4.0],
            Scale::Nines => &[1.0],
            _ => &[TWO_AND_FIVE, 1.0, 2.0, 3.0],
        };
        let mut all = steps.iter().map(|&step| self.positions(step));
        let few = all.clone().find(|positions| positions.len() <= most);
        let positions = few.or_else(|| all.next_back()).unwrap_or_default();
        let value = |position: f64| self.scale.value(position);
        positions
            .into_iter()
            .map(|position| (value(position), self.scale.text(value(position))))
            .collect()
    }

    /// The values from 2 to 9 of each power of ten; none on scales without powers of ten.
    pub fn between(&self) -> Vec<f64> {
        if matches!(self.scale, Scale::Bytes | Scale::Nines) {
            return Vec::new();
        }
        let decades = (self.low.floor() as i32)..=(self.high.ceil() as i32);
        let digits = (2..10).map(f64::from);
        let all =
            decades.flat_map(|decade| digits.clone().map(move |digit| digit * 10_f64.powi(decade)));
        all.filter(|&value| (0.0..=1.0).contains(&self.at(value)))
            .collect()
    }

    /// Positions in range at multiples of `step`.
    fn positions(&self, step: f64) -> Vec<f64> {
        let inside = |position: &f64| *position >= self.low - 1e-9 && *position <= self.high + 1e-9;
        if step == TWO_AND_FIVE {
            let decades = (self.low.floor() as i32)..=(self.high.ceil() as i32);
            let parts = [1.0_f64, 2.0, 5.0].map(f64::log10);
            let all = decades.flat_map(|decade| parts.map(|part| f64::from(decade) + part));
            return all.filter(inside).collect();
        }
        let first = (self.low / step).ceil() as i64;
        let positions = (first..).map(|number| number as f64 * step);
        positions.take_while(inside).collect()
    }
}

/// A step that stands for 1, 2 and 5 of each decade.
const TWO_AND_FIVE: f64 = 0.0;

impl Scale {
    fn position(self, value: f64) -> f64 {
        match self {
            Self::Bytes => value.log2(),
            Self::Nines => -(1.0 - value).log10(),
            _ => value.log10(),
        }
    }

    fn value(self, position: f64) -> f64 {
        match self {
            Self::Bytes => position.exp2(),
            Self::Nines => 1.0 - 10_f64.powf(-position),
            _ => 10_f64.powf(position),
        }
    }

    /// The bounds with a margin.
    fn widen(self, low: f64, high: f64) -> (f64, f64) {
        match self {
            Self::Bytes => (low, high.max(low + 1.0)),
            Self::Nines => (0.0, high.max(1.0)),
            _ => (low - 0.08, (high + 0.08).max(low + 0.5)),
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::Bytes => size::text(value.round() as usize),
            Self::Nanoseconds => with_unit(
                value,
                &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")],
            ),
            Self::BytesPerSecond => with_unit(
                value,
                &[
                    (1e9, " GB/s"),
                    (1e6, " MB/s"),
                    (1e3, " kB/s"),
                    (1.0, " B/s"),
                ],
            ),
            Self::PerSecond => with_unit(
                value,
                &[(1e9, " G/s"), (1e6, " M/s"), (1e3, " k/s"), (1.0, " /s")],
            ),
            Self::Nines => format!("{} %", short(value * 100.0)),
        }
    }
}

fn with_unit(value: f64, units: &[(f64, &str)]) -> String {
    let fitting = units.iter().find(|(unit, _)| value >= *unit * 0.999);
    let (unit, name) = fitting
        .or_else(|| units.last())
        .copied()
        .unwrap_or((1.0, ""));
    format!("{}{name}", short(value / unit))
}

/// A number without trailing zeros.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, values: &[f64], most: usize) -> Vec<String> {
        let axis = Axis::over(scale, "", values.iter().copied());
        axis.ticks(most).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(
            texts(Scale::Bytes, &[1.0, 1048576.0], 12),
            [
                "1", "4", "16", "64", "256", "1k", "4k", "16k", "64k", "256k", "1m"
            ]
        );
        assert_eq!(
            texts(Scale::Nanoseconds, &[90.0, 1200.0], 8),
            ["100 ns", "200 ns", "500 ns", "1 µs"]
        );
        assert_eq!(
            texts(Scale::Nines, &[0.0, 0.999], 8),
            ["0 %", "90 %", "99 %", "99.9 %"]
        );
    }

    #[test]
    fn the_ends_lie_at_the_ends_and_nothing_lies_nowhere() {
        let axis = Axis::over(Scale::Bytes, "", [8.0, 8192.0].into_iter());
        assert_eq!((axis.at(8.0), axis.at(8192.0)), (0.0, 1.0));
        assert!(!axis.at(0.0).is_finite());
        let none = Axis::over(Scale::Nanoseconds, "", std::iter::empty());
        assert!(none.at(5.0).is_finite());
    }
}
