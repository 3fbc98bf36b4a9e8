//! Axes: the positions of values, and the labels beside them.

use crate::measure::size;

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
    /// Shares below one: 90 %, 99 %, 99.9 % and so on are equidistant.
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
    /// Makes an axis that contains all of these values, except those without a finite position.
    pub fn new(scale: Scale, label: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let positions = values.map(|value| scale.position(value));
        let (low, high) = positions.filter(|position| position.is_finite()).fold(
            (f64::INFINITY, f64::NEG_INFINITY),
            |(low, high), position| (low.min(position), high.max(position)),
        );
        let (low, high) = if low <= high {
            scale.widen(low, high)
        } else {
            (0.0, 1.0)
        };
        Self {
            scale,
            label,
            low,
            high,
        }
    }

    /// Position of a value, from 0 at the low end to 1 at the high end; infinite or NaN for a value
    /// without a position.
    pub fn position(&self, value: f64) -> f64 {
        (self.scale.position(value) - self.low) / (self.high - self.low)
    }

    /// The labelled values with their texts: at most `max_count`, if one of the steps permits.
    pub fn ticks(&self, max_count: usize) -> Vec<(f64, String)> {
        let steps: &[f64] = match self.scale {
            Scale::Bytes => &[1.0, 2.0, 4.0],
            Scale::Nines => &[1.0],
            _ => &[TWO_AND_FIVE, 1.0, 2.0, 3.0],
        };
        let mut candidates = steps.iter().map(|&step| self.positions(step));
        let fitting = candidates
            .clone()
            .find(|positions| positions.len() <= max_count);
        let positions = fitting
            .or_else(|| candidates.next_back())
            .unwrap_or_default();
        let value = |position: f64| self.scale.value(position);
        positions
            .into_iter()
            .map(|position| (value(position), self.scale.text(value(position))))
            .collect()
    }

    /// The values without labels: twice to nine times each power of ten. Empty for scales without
    /// powers of ten.
    pub fn minor_values(&self) -> Vec<f64> {
        if matches!(self.scale, Scale::Bytes | Scale::Nines) {
            return Vec::new();
        }
        let decades = (self.low.floor() as i32)..=(self.high.ceil() as i32);
        let digits = (2..10).map(f64::from);
        let values =
            decades.flat_map(|decade| digits.clone().map(move |digit| digit * 10_f64.powi(decade)));
        values
            .filter(|&value| (0.0..=1.0).contains(&self.position(value)))
            .collect()
    }

    /// Positions in range at multiples of `step`.
    fn positions(&self, step: f64) -> Vec<f64> {
        let inside = |position: &f64| *position >= self.low - 1e-9 && *position <= self.high + 1e-9;
        if step == TWO_AND_FIVE {
            let decades = (self.low.floor() as i32)..=(self.high.ceil() as i32);
            let logarithms = [1.0_f64, 2.0, 5.0].map(f64::log10);
            let positions = decades
                .flat_map(|decade| logarithms.map(|logarithm| f64::from(decade) + logarithm));
            return positions.filter(inside).collect();
        }
        let first = (self.low / step).ceil() as i64;
        let positions = (first..).map(|number| number as f64 * step);
        positions.take_while(inside).collect()
    }
}

/// A step that represents the values 1, 2 and 5 of each decade.
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
            Self::Nines => format!("{} %", format_short(value * 100.0)),
        }
    }
}

fn with_unit(value: f64, units: &[(f64, &str)]) -> String {
    let fitting = units.iter().find(|(unit, _)| value >= *unit * 0.999);
    let (unit, name) = fitting
        .or_else(|| units.last())
        .copied()
        .unwrap_or((1.0, ""));
    format!("{}{name}", format_short(value / unit))
}

/// A number without trailing zeros.
fn format_short(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: Scale, values: &[f64], max_count: usize) -> Vec<String> {
        let axis = Axis::new(scale, "", values.iter().copied());
        axis.ticks(max_count)
            .into_iter()
            .map(|(_, text)| text)
            .collect()
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
    fn bounds_have_positions_0_and_1_and_an_empty_axis_has_finite_positions() {
        let axis = Axis::new(Scale::Bytes, "", [8.0, 8192.0].into_iter());
        assert_eq!((axis.position(8.0), axis.position(8192.0)), (0.0, 1.0));
        assert!(!axis.position(0.0).is_finite());
        let empty = Axis::new(Scale::Nanoseconds, "", std::iter::empty());
        assert!(empty.position(5.0).is_finite());
    }
}
