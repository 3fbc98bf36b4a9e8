//! Medians, quantiles and spread of repeated measurements.

use fastrand::Rng;

/// The `q` quantile of sorted values, interpolated between neighbours; NaN for an empty slice.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = q * last as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    below + (above - below) * position.fract()
}

/// The median: of an even number of values, the mean of the middle two; NaN for an empty slice.
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// Relative quartile distance, `(p75 - p25) / median`. 0 for one value, NaN for an empty
/// slice.
pub fn spread(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / quantile(&sorted, 0.5)
}

/// 95 % confidence interval of the median: quantiles of the medians of resamples (bootstrap). Both
/// bounds are NaN for an empty slice.
pub fn confidence(values: &[f64]) -> [f64; 2] {
    let mut random = Rng::with_seed(SEED);
    central_interval(|| median(&resample(&mut random, values)))
}

/// 95 % confidence interval of the quotient of two medians.
pub fn ratio_confidence(numerators: &[f64], denominators: &[f64]) -> [f64; 2] {
    let mut random = Rng::with_seed(SEED);
    central_interval(|| {
        median(&resample(&mut random, numerators)) / median(&resample(&mut random, denominators))
    })
}

/// The geometric mean of positive values; NaN for an empty slice.
pub fn geometric_mean(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (sum / values.len() as f64).exp()
}

/// The central interval that contains 95 % of repeated draws.
fn central_interval(mut draw: impl FnMut() -> f64) -> [f64; 2] {
    let drawn: Vec<_> = (0..RESAMPLES).map(|_| draw()).collect();
    let drawn = sorted(&drawn);
    [quantile(&drawn, 0.025), quantile(&drawn, 0.975)]
}

/// Draws as many random values, with replacement, as `values` has.
fn resample(random: &mut Rng, values: &[f64]) -> Vec<f64> {
    let draws = values.iter().map(|_| values[random.usize(..values.len())]);
    draws.collect()
}

/// Seed of the resamples. A constant seed makes the intervals of a report reproducible.
const SEED: u64 = 0x5e1d_ede5;
/// Number of resamples: enough for two digits of the bounds.
const RESAMPLES: usize = 2000;

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_spread_is_the_quartile_distance_over_the_median() {
        assert_eq!(spread(&[1.0, 2.0, 3.0, 4.0, 5.0]), 2.0 / 3.0);
        assert_eq!(spread(&[7.0]), 0.0);
    }

    #[test]
    fn one_outlier_does_not_move_the_spread() {
        assert_eq!(spread(&[2.0, 2.0, 2.0, 2.0, 900.0]), 0.0);
    }

    #[test]
    fn the_confidence_interval_contains_the_median_and_is_empty_for_equal_values() {
        assert_eq!(confidence(&[5.0; 6]), [5.0, 5.0]);
        let values = [9.0, 10.0, 10.5, 11.0, 30.0];
        let [low, high] = confidence(&values);
        assert!((9.0..=10.5).contains(&low) && (10.5..=30.0).contains(&high));
        assert!(confidence(&[]).iter().all(|bound| bound.is_nan()));
    }

    #[test]
    fn the_interval_of_a_quotient_excludes_1_if_the_values_do_not_overlap() {
        let fast = [1.0, 1.1, 1.05, 0.95];
        let slow = [2.0, 2.2, 2.1, 1.9];
        let [low, high] = ratio_confidence(&slow, &fast);
        assert!(low > 1.5 && high < 2.5, "{low} {high}");
        let [low, high] = ratio_confidence(&fast, &fast);
        assert!(low < 1.0 && high > 1.0, "{low} {high}");
        assert!((geometric_mean(&[0.5, 2.0]) - 1.0).abs() < 1e-9);
    }
}
