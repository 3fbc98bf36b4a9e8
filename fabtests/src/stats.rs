//! Medians, quantiles and spread of repeated measurements.

/// The value below which a share `q` of the sorted `values` lies, interpolated between neighbours;
/// NaN for none.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let position = q * last as f64;
    let below = sorted[position.floor() as usize];
    let above = sorted[position.ceil() as usize];
    below + (above - below) * position.fract()
}

/// The middle value; the mean of the middle two of an even number; NaN for none.
pub fn median(values: &[f64]) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// How far repetitions scatter: `(p75 - p25) / median`. 0 for one value, NaN for none.
pub fn spread(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / quantile(&sorted, 0.5)
}

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
}
