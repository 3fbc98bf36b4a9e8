//! Comparison of two reports: the ratio of their times at each point.

use std::collections::BTreeSet;

use serde::Serialize;

use super::stored::{Report, Row};
use crate::measure::stats::{median, ratio_confidence};

/// The comparison of one point of both reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Versus {
    /// The benchmark, with the configuration unless it is the plain pair.
    #[serde(rename = "what")]
    pub label: String,
    /// Bytes of a message.
    pub size: usize,
    /// Time of one message in report A, in nanoseconds.
    pub a_ns: f64,
    /// Time of one message in report B, in nanoseconds.
    pub b_ns: f64,
    /// `b_ns` over `a_ns`.
    pub ratio: f64,
    /// 95 % confidence interval of `ratio`.
    pub ci: [f64; 2],
    /// The conclusion from `ci`.
    #[serde(rename = "judgement")]
    pub change: Change,
}

/// The difference of B's time from A's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// B takes less time.
    Faster,
    /// B takes more time.
    Slower,
    /// The confidence interval contains 1.
    Same,
}

/// The comparison of two reports.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The contestants of A.
    pub a: String,
    /// The contestants of B.
    pub b: String,
    /// The points of both reports.
    pub points: Vec<Versus>,
}

/// Compares the points that two reports have in common. Pairs contestants of the same name; if
/// there are none, pairs the first contestant of each report.
pub fn compare_reports(a: &Report, b: &Report) -> Comparison {
    let pairs = pairs(a, b);
    let names = |name: fn(&(&Row, &Row)) -> String| {
        let mut names: Vec<_> = pairs.iter().map(name).collect();
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    };
    let (a_names, b_names) = (
        names(|pair| contestant(pair.0)),
        names(|pair| contestant(pair.1)),
    );
    let has_several_contestants = a_names.len() > 1;
    let points = pairs.iter().map(|(row, other)| {
        let point = Versus::from_rows(row, other);
        if has_several_contestants {
            Versus {
                label: format!("{}, {}", point.label, row.provider),
                ..point
            }
        } else {
            point
        }
    });
    Comparison {
        points: points.collect(),
        a: a_names.join("; "),
        b: b_names.join("; "),
    }
}

fn pairs<'a>(a: &'a Report, b: &'a Report) -> Vec<(&'a Row, &'a Row)> {
    let partner = |row: &'a Row| b.rows.iter().find(|other| is_same_measurement(row, other));
    let named = a.rows.iter().filter_map(|row| Some((row, partner(row)?)));
    let named: Vec<_> = named.collect();
    if !named.is_empty() {
        return named;
    }
    let (a_rows, b_rows) = (first_contestant_rows(a), first_contestant_rows(b));
    let pairs = a_rows.into_iter().filter_map(|row| {
        let is_partner = |other: &&&Row| is_same_point(row, other);
        Some((row, *b_rows.iter().find(is_partner)?))
    });
    pairs.collect()
}

/// The contestant of a row, as text.
fn contestant(row: &Row) -> String {
    let name = format!("{} of {}", row.provider, row.implementation);
    match row.config.as_str() {
        "" => name,
        config => format!("{name} ({config})"),
    }
}

/// The rows of the first contestant.
fn first_contestant_rows(report: &Report) -> Vec<&Row> {
    let Some(first) = report.rows.first() else {
        return Vec::new();
    };
    let is_first = |row: &&Row| is_same_contestant(first, row);
    report.rows.iter().filter(is_first).collect()
}

fn is_same_measurement(a: &Row, b: &Row) -> bool {
    is_same_contestant(a, b) && is_same_point(a, b)
}

/// Whether two rows have the same contestant, of any version.
fn is_same_contestant(a: &Row, b: &Row) -> bool {
    let name = |row: &Row| row.implementation.split(' ').next().map(str::to_owned);
    a.provider == b.provider && a.config == b.config && name(a) == name(b)
}

fn is_same_point(a: &Row, b: &Row) -> bool {
    a.bench == b.bench && a.size == b.size && a.window == b.window
}

impl Versus {
    fn from_rows(a: &Row, b: &Row) -> Self {
        let label = match a.config.as_str() {
            "" => a.bench.clone(),
            config => format!("{}, {config}", a.bench),
        };
        Self {
            a_ns: a.message_ns(),
            b_ns: b.message_ns(),
            ratio: b.message_ns() / a.message_ns(),
            ..Self::of_runs(label, a.size, &a.runs_ns, &b.runs_ns)
        }
    }

    /// Compares the times of a message in the runs of A and B, in nanoseconds.
    pub fn of_runs(label: String, size: usize, a: &[f64], b: &[f64]) -> Self {
        let (a_ns, b_ns) = (median(a), median(b));
        let ci = match a.len().min(b.len()) {
            0 | 1 => [f64::NAN; 2],
            _ => ratio_confidence(b, a),
        };
        Self {
            label,
            size,
            a_ns,
            b_ns,
            ratio: b_ns / a_ns,
            ci,
            change: match ci {
                [_, high] if high < 1.0 => Change::Faster,
                [low, _] if low > 1.0 => Change::Slower,
                _ => Change::Same,
            },
        }
    }

    /// Whether B certainly takes more than `factor` times as long as A.
    pub fn is_worse_than(&self, factor: f64) -> bool {
        self.ci[0] > factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(provider: &str, version: &str, ns: f64) -> Report {
        let runs = [ns, ns * 1.01, ns * 0.99, ns * 1.02];
        let row = |size: usize| {
            serde_json::json!({
                "provider": provider, "implementation": format!("selvedge {version}"),
                "bench": "tagged_pingpong", "size": size, "window": 1, "rtt_ns": null,
                "msgs_per_s": 1e9 / ns, "limit_ns": null, "memcpy_mbps": null, "cma_ns": null,
                "manner": "", "runs_ns": runs,
            })
        };
        serde_json::from_value(serde_json::json!({
            "machine": {"cpu": "x", "cores": 2, "kernel": "y"}, "rows": [row(8), row(64)],
        }))
        .unwrap()
    }

    #[test]
    fn the_same_contestant_of_another_version_is_compared_with_itself() {
        let comparison = compare_reports(&report("shm", "0.1", 100.0), &report("shm", "0.2", 80.0));
        assert_eq!(comparison.a, "shm of selvedge 0.1");
        assert_eq!(comparison.b, "shm of selvedge 0.2");
        let points = comparison.points;
        assert_eq!(points.len(), 2);
        assert_eq!((points[0].size, points[1].size), (8, 64));
        assert!((points[0].ratio - 0.8).abs() < 1e-9);
        assert_eq!(points[0].change, Change::Faster);
        assert!(!points[0].is_worse_than(1.0));
    }

    #[test]
    fn different_contestants_are_compared_if_no_names_match() {
        let comparison =
            compare_reports(&report("shm", "0.1", 100.0), &report("tcp", "0.1", 9000.0));
        assert_eq!(comparison.b, "tcp of selvedge 0.1");
        let points = comparison.points;
        assert_eq!(points[0].change, Change::Slower);
        assert!(points[0].is_worse_than(50.0) && !points[0].is_worse_than(100.0));
    }

    #[test]
    fn labels_of_several_contestants_name_their_provider() {
        let two = |factor: f64| {
            let mut comparison = report("shm", "0.1", 100.0 * factor);
            comparison
                .rows
                .extend(report("tcp", "0.1", 9000.0 * factor).rows);
            comparison
        };
        let comparison = compare_reports(&two(1.0), &two(2.0));
        let labels: BTreeSet<_> = comparison
            .points
            .iter()
            .map(|point| &*point.label)
            .collect();
        assert_eq!(
            Vec::from_iter(labels),
            ["tagged_pingpong, shm", "tagged_pingpong, tcp"]
        );
        assert_eq!(comparison.a, "shm of selvedge 0.1; tcp of selvedge 0.1");
    }

    #[test]
    fn a_difference_within_the_scatter_is_no_change() {
        let mut b = report("shm", "0.1", 101.0);
        b.rows[0].runs_ns = vec![60.0, 140.0, 101.0, 90.0];
        let points = compare_reports(&report("shm", "0.1", 100.0), &b).points;
        assert_eq!(points[0].change, Change::Same);
    }
}
