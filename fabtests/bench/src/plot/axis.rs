//! Axes: where a value lies, and what is written beside it.

use crate::size;

/// How values are laid out along an axis.
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
    /// Shares below one, ever nearer to one: the nines.
    Nines,
}

/// A scale from one value to another.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    scale: Scale,
    /// What stands beside it.
    pub label: &'static str,
    low: f64,
    high: f64,
}

impl Axis {
    /// An axis on which all of these values have a place. Values that have none on any are left out.
    pub fn over(scale: Scale, label: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let places = values.map(|value| scale.place(value));
        let (low, high) = places
            .filter(|place| place.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), place| {
                (low.min(place), high.max(place))
            });
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

    /// Where a value lies, from 0 to 1; not finite for one that has no place.
    pub fn at(&self, value: f64) -> f64 {
        (self.scale.place(value) - self.low) / (self.high - self.low)
    }

    /// The values that are written beside it, with their texts: no more than so many.
    pub fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let steps: &[f64] = match self.scale {
            Scale::Bytes => &[1.0, 2.0, 4.0],
            Scale::Nines => &[1.0],
            _ => &[TWO_AND_FIVE, 1.0, 2.0, 3.0],
        };
        let mut all = steps.iter().map(|&step| self.places(step));
        let few = all.clone().find(|places| places.len() <= most);
        let places = few.or_else(|| all.next_back()).unwrap_or_default();
        let value = |place: f64| self.scale.value(place);
        places
            .into_iter()
            .map(|place| (value(place), self.scale.text(value(place))))
            .collect()
    }

    /// The values between the powers of ten, where there are such: from 2 to 9 of each.
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

    /// Places that are so far from each other.
    fn places(&self, step: f64) -> Vec<f64> {
        let inside = |place: &f64| *place >= self.low - 1e-9 && *place <= self.high + 1e-9;
        if step == TWO_AND_FIVE {
            let decades = (self.low.floor() as i32)..=(self.high.ceil() as i32);
            let parts = [1.0_f64, 2.0, 5.0].map(f64::log10);
            let all = decades.flat_map(|decade| parts.map(|part| f64::from(decade) + part));
            return all.filter(inside).collect();
        }
        let first = (self.low / step).ceil() as i64;
        let places = (first..).map(|number| number as f64 * step);
        places.take_while(inside).collect()
    }
}

/// Stands for the steps 1, 2 and 5 of each decade.
const TWO_AND_FIVE: f64 = 0.0;

impl Scale {
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Bytes => value.log2(),
            Self::Nines => -(1.0 - value).log10(),
            _ => value.log10(),
        }
    }

    fn value(self, place: f64) -> f64 {
        match self {
            Self::Bytes => place.exp2(),
            Self::Nines => 1.0 - 10_f64.powf(-place),
            _ => 10_f64.powf(place),
        }
    }

    /// A little room around the values.
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

/// Without zeros at the end.
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
