//! The plots of a report: latency, bandwidth and rate against the size, each beside the limits of
//! the machine, and the distribution of latencies.

use super::axis::{Axis, Scale};
use super::chart::{Chart, Series, Style};
use crate::comparison::left_out;
use crate::comparison::stored::{Report, Row};
use crate::measure::timing::QUANTILES;

/// A chart and the name of its file, without an extension.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The name, such as `latency`.
    pub name: String,
    /// The chart.
    pub chart: Chart,
}

/// Makes all plots for which the reports have rows.
pub fn pictures(reports: &[Report]) -> Vec<Picture> {
    let rows: Vec<&Row> = reports.iter().flat_map(|report| &report.rows).collect();
    let machine = reports.first().map_or_else(String::new, |report| {
        let machine = &report.machine;
        format!(
            "{}, {} cores, {}",
            machine.cpu, machine.cores, machine.kernel
        )
    });
    let machine = if reports.iter().any(|report| report.partial) {
        machine + "; partial: the run was interrupted"
    } else {
        machine
    };
    let against_size = FIGURES.iter().filter_map(|figure| {
        let chart = figure.chart(&rows, &machine)?;
        let name = figure.name.to_owned();
        Some(Picture { name, chart })
    });
    let (ring, messages): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.is_of_ring());
    let distributions = [
        MESSAGES.picture(&messages, &machine),
        EXCHANGES.picture(&ring, &machine),
    ];
    let distributions = distributions.into_iter().flatten();
    against_size.chain(distributions).collect()
}

/// The line below a title: the machine and the number of runs of these rows.
fn subtitle(machine: &str, rows: &[&Row]) -> String {
    let reps = rows.iter().map(|row| row.reps).sum();
    let dropped = rows.iter().map(|row| row.dropped).sum();
    // The subtitle of an empty chart states why the chart is empty.
    match left_out(reps, dropped) {
        Some(sentence) if reps == 0 => format!("{machine}; {sentence}"),
        _ => machine.to_owned() + &run_count_text(rows),
    }
}

/// The number of runs whose medians the lines are, as text; empty if no row has several runs.
fn run_count_text(rows: &[&Row]) -> String {
    let counts = || {
        rows.iter()
            .map(|row| row.runs_ns.len())
            .filter(|&runs| runs > 0)
    };
    match (counts().min(), counts().max()) {
        (_, None | Some(0 | 1)) | (None, _) => String::new(),
        (Some(min), Some(max)) if min == max => {
            format!("; medians of {max} runs, bands: 95 %")
        }
        (Some(min), Some(max)) => format!("; medians of {min} to {max} runs, bands: 95 %"),
    }
}

/// A figure that is plotted against the size.
struct Figure {
    name: &'static str,
    title: &'static str,
    /// Label of the horizontal axis.
    x_label: &'static str,
    y_label: &'static str,
    scale: Scale,
    /// Whether the figure includes a row.
    includes: fn(&Row) -> bool,
    /// The value for a message that takes this many nanoseconds.
    value: fn(&Row, f64) -> f64,
}

/// Time of a message at a limit, in nanoseconds; `None` if it was not measured.
type Limit = fn(&Row) -> Option<f64>;

const FIGURES: [Figure; 4] = [
    Figure {
        name: "latency",
        title: "One way: half of a round trip",
        x_label: "size of a message, bytes",
        y_label: "time of a message",
        scale: Scale::Nanoseconds,
        includes: |row| row.rtt_ns.is_some() && !row.is_of_ring(),
        value: |_, ns| ns,
    },
    Figure {
        name: "bandwidth",
        title: "Bandwidth of a stream",
        x_label: "size of a message, bytes",
        y_label: "bandwidth",
        scale: Scale::BytesPerSecond,
        includes: |row| row.rtt_ns.is_none() && row.window > 1,
        value: |row, ns| row.size as f64 * 1e9 / ns,
    },
    Figure {
        name: "rate",
        title: "Messages of a stream",
        x_label: "size of a message, bytes",
        y_label: "messages per second",
        scale: Scale::PerSecond,
        includes: |row| row.rtt_ns.is_none() && row.window > 1 && row.size <= 4096,
        value: |_, ns| 1e9 / ns,
    },
    Figure {
        name: "accesses",
        title: "One access after the other: gets and atomics",
        x_label: "size of an access, bytes",
        y_label: "time of an access",
        scale: Scale::Nanoseconds,
        includes: |row| row.rtt_ns.is_none() && row.window == 1,
        value: |_, ns| ns,
    },
];

impl Figure {
    fn chart(&self, rows: &[&Row], machine: &str) -> Option<Chart> {
        let rows: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|row| (self.includes)(row))
            .collect();
        let mut series: Vec<_> = names(&rows)
            .into_iter()
            .enumerate()
            .map(|(number, name)| self.measured_series(&rows, number, name))
            .collect();
        if series.is_empty() {
            return None;
        }
        series.extend(self.limit_series(&rows));
        let xs = points(&series).map(|point| point.0).collect::<Vec<_>>();
        let ys = points(&series).map(|point| point.1).collect::<Vec<_>>();
        Some(Chart {
            title: self.title.to_owned(),
            subtitle: subtitle(machine, &rows),
            x: Axis::new(Scale::Bytes, self.x_label, xs.into_iter()),
            y: Axis::new(self.scale, self.y_label, ys.into_iter()),
            series,
        })
    }

    fn measured_series(&self, rows: &[&Row], number: usize, name: String) -> Series {
        let rows = rows.iter().filter(|row| row.distinct_name(rows) == name);
        let value = |row: &Row, ns| (self.value)(row, ns);
        let band = rows.clone().map(|row| {
            let [low, high] = row.confidence();
            (value(row, low), value(row, high))
        });
        Series {
            style: Style::Measured(number),
            points: rows
                .clone()
                .map(|row| (row.size as f64, value(row, row.message_ns())))
                .collect(),
            band: band.collect(),
            name,
        }
    }

    /// Makes a line for each kind of limit that the rows have.
    fn limit_series(&self, rows: &[&Row]) -> Vec<Series> {
        let mut lines: Vec<(String, Vec<&Row>, Limit)> = Vec::new();
        // CMA and memcpy have the same dashes in every plot; the kinds of limits use the others.
        let kind_dashes = (0..CMA_DASHES).chain(MEMCPY_DASHES + 1..);
        for provider in providers(rows) {
            let provider_rows = rows.iter().copied().filter(|row| row.provider == provider);
            let provider_rows: Vec<_> = provider_rows.collect();
            for kind in limit_kinds(&provider_rows) {
                let is_of_kind = |row: &&Row| limit_kind(row) == kind;
                let name = format!("limit of {kind}, {provider}");
                let rows = provider_rows.iter().copied().filter(is_of_kind);
                lines.push((name, rows.collect(), |row| row.limit_ns));
            }
        }
        lines.push(("one read by CMA".to_owned(), rows.to_vec(), |row| {
            row.cma_ns
        }));
        // Small copies are not a limit of messages: a copy of few bytes takes no longer than a
        // call.
        let large = rows.iter().copied().filter(|row| row.size >= 1024);
        lines.push(("memcpy in cache".to_owned(), large.collect(), |row| {
            row.memcpy_mbps.map(|mbps| row.size as f64 * 1e3 / mbps)
        }));
        let count = lines.len() - 2;
        let dashes = kind_dashes.take(count).chain([CMA_DASHES, MEMCPY_DASHES]);
        let numbered = lines.into_iter().zip(dashes);
        let drawn = numbered.filter_map(|((name, rows, limit), dashes)| {
            let points = rows.iter().map(|row| {
                let ns = limit(row).filter(|ns| *ns > 0.0);
                let value = ns.map_or(f64::NAN, |ns| (self.value)(row, ns));
                (row.size as f64, value)
            });
            let mut points: Vec<_> = points.collect();
            // If several rows have the same size, the first with a finite value counts.
            points.sort_by(|one, other| {
                let key = |point: &(f64, f64)| (point.0, f64::from(u8::from(point.1.is_nan())));
                let (one, other) = (key(one), key(other));
                one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1))
            });
            points.dedup_by(|one, other| one.0 == other.0);
            let has_values = points.iter().any(|point| point.1.is_finite());
            has_values.then_some((name, points, dashes))
        });
        let series = drawn.map(|(name, points, dashes)| Series {
            name,
            style: Style::Limit(dashes),
            points,
            band: Vec::new(),
        });
        series.collect()
    }
}

const CMA_DASHES: usize = 1;
const MEMCPY_DASHES: usize = 2;

/// The distinct providers of the rows, in the order of the rows.
fn providers(rows: &[&Row]) -> Vec<String> {
    distinct(rows.iter().map(|row| row.provider.clone()))
}

/// The distinct kinds of limits of the rows, in the order of the rows.
fn limit_kinds(rows: &[&Row]) -> Vec<&'static str> {
    distinct(rows.iter().map(|row| limit_kind(row)))
}

/// The kind of limit of a row. All messages have the same limit; accesses have limits by kind.
fn limit_kind(row: &Row) -> &'static str {
    match row.bench.as_str() {
        "rma_put" => "puts",
        "rma_get" => "gets",
        "rma_bw" | "rma_read_bw" => "windows of accesses",
        "atomic_add" | "atomic_fetch_add" => "atomics",
        _ => "messages",
    }
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for item in items {
        if !distinct.contains(&item) {
            distinct.push(item);
        }
    }
    distinct
}

/// A plot of the distribution of the times of one size.
struct Distribution {
    name: &'static str,
    /// The title up to the size.
    title: &'static str,
    x_label: &'static str,
    y_label: &'static str,
    /// The share of a timed trip that is plotted.
    share: f64,
}

/// Half round trips.
const MESSAGES: Distribution = Distribution {
    name: "spread",
    title: "Time of messages of",
    x_label: "share of the messages that take at most this time",
    y_label: "half of a round trip",
    share: 0.5,
};
/// Exchanges in a ring.
const EXCHANGES: Distribution = Distribution {
    name: "ring",
    title: "Exchanges in a ring, messages of",
    x_label: "share of the exchanges that take at most this time",
    y_label: "time of an exchange",
    share: 1.0,
};

impl Distribution {
    /// Plots the smallest size with a run that counts. If every run was left out, plots the smallest
    /// of all sizes.
    fn picture(&self, rows: &[&Row], machine: &str) -> Option<Picture> {
        let smallest = |is_included: fn(&Row) -> bool| {
            let included = rows.iter().filter(|row| is_included(row));
            included.map(|row| row.size).min()
        };
        let is_left_out = |row: &Row| row.rtt_ns.is_some() && row.reps == 0 && row.dropped > 0;
        let size = smallest(|row| row.curve().is_some()).or_else(|| smallest(is_left_out))?;
        let size_rows = rows.iter().copied().filter(|row| row.size == size);
        let rows: Vec<&Row> = size_rows
            .filter(|row| row.curve().is_some() || is_left_out(row))
            .collect();
        let series: Vec<_> = names(&rows)
            .into_iter()
            .enumerate()
            .filter_map(|(number, name)| {
                let row = rows.iter().find(|row| row.distinct_name(&rows) == name)?;
                let times = row.curve()?.map(|ns| ns * self.share);
                let points = QUANTILES.into_iter().zip(times);
                Some(Series {
                    name,
                    style: Style::Measured(number),
                    // The maximum has no position on the scale of nines.
                    points: points.filter(|(share, _)| *share < 1.0).collect(),
                    band: Vec::new(),
                })
            })
            .collect();
        let ys = points(&series).map(|point| point.1).collect::<Vec<_>>();
        Some(Picture {
            name: self.name.to_owned(),
            chart: Chart {
                title: match size {
                    1 => format!("{} 1 byte", self.title),
                    _ => format!("{} {} bytes", self.title, crate::measure::size::text(size)),
                },
                subtitle: subtitle(machine, &rows),
                x: Axis::new(
                    Scale::Nines,
                    self.x_label,
                    QUANTILES[..QUANTILES.len() - 1].iter().copied(),
                ),
                y: Axis::new(Scale::Nanoseconds, self.y_label, ys.into_iter()),
                series,
            },
        })
    }
}

/// The distinct names of the rows, in the order of the rows.
fn names(rows: &[&Row]) -> Vec<String> {
    distinct(rows.iter().map(|row| row.distinct_name(rows)))
}

fn points(series: &[Series]) -> impl Iterator<Item = (f64, f64)> {
    series
        .iter()
        .flat_map(|series| series.points.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row of a single access or of a stream.
    fn row(bench: &str, size: usize, window: usize, limit: f64) -> serde_json::Value {
        serde_json::json!({
            "provider": "shm", "implementation": "selvedge 0", "bench": bench, "size": size,
            "window": window, "rtt_ns": null, "msgs_per_s": 1e7, "limit_ns": limit,
            "memcpy_mbps": null, "cma_ns": null, "runs_ns": [100.0, 101.0, 99.0],
        })
    }

    fn draw(rows: &serde_json::Value) -> Vec<Picture> {
        let machine = serde_json::json!({"cpu": "one", "cores": 2, "kernel": "of them"});
        let report = serde_json::json!({"machine": machine, "rows": rows});
        pictures(&[serde_json::from_value(report).unwrap()])
    }

    #[test]
    fn each_kind_of_access_is_plotted_with_its_limit() {
        let drawn = draw(&serde_json::json!([
            row("rma_get", 8, 1, 50.0),
            row("rma_get", 64, 1, 60.0),
            row("atomic_add", 8, 1, 40.0),
            row("rma_bw", 8, 64, 5.0),
            row("tagged_bw", 8, 64, 20.0),
            row("msg_bw", 8, 64, 21.0),
        ]));
        let limits = |name: &str| {
            let picture = drawn.iter().find(|picture| picture.name == name).unwrap();
            let series = picture.chart.series.iter();
            let limits = series.filter(|series| matches!(series.style, Style::Limit(_)));
            limits
                .map(|series| (series.name.clone(), series.points.clone()))
                .collect::<Vec<_>>()
        };
        let accesses = limits("accesses");
        assert_eq!(accesses.len(), 2, "{accesses:?}");
        let [gets, atomics] = [&accesses[0], &accesses[1]];
        assert_eq!(gets.0, "limit of gets, shm");
        assert_eq!(gets.1, [(8.0, 50.0), (64.0, 60.0)]);
        assert_eq!(
            (atomics.0.as_str(), &atomics.1[..]),
            ("limit of atomics, shm", &[(8.0, 40.0)][..])
        );
        let rate = limits("rate");
        let names: Vec<_> = rate.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "limit of windows of accesses, shm",
                "limit of messages, shm"
            ]
        );
    }

    #[test]
    fn the_same_limit_has_the_same_dashes_in_every_picture() {
        let row = |bench: &str, window: usize| {
            let mut row = row(bench, 4096, window, 50.0);
            row["memcpy_mbps"] = 1e4.into();
            row["cma_ns"] = 900.0.into();
            row
        };
        let drawn = draw(&serde_json::json!([
            row("tagged_bw", 64),
            row("rma_get", 1),
            row("atomic_add", 1),
        ]));
        for picture in &drawn {
            let series = picture.chart.series.iter();
            let styles = series.filter_map(|series| match series.style {
                Style::Limit(dashes) => Some((series.name.as_str(), dashes)),
                Style::Measured(_) => None,
            });
            let styles: Vec<_> = styles.collect();
            assert!(styles.contains(&("one read by CMA", 1)), "{styles:?}");
            assert!(styles.contains(&("memcpy in cache", 2)), "{styles:?}");
            let others = styles.iter().filter(|(name, _)| name.starts_with("limit"));
            let others: Vec<_> = others.map(|style| style.1).collect();
            assert_eq!(others, [0, 3][..others.len()]);
        }
        assert!(drawn.len() >= 2);
    }

    #[test]
    fn pictures_of_a_report_without_counted_runs_state_the_reason() {
        let left_out = |bench: &str, rtt: serde_json::Value| {
            let mut row = row(bench, 8, 64, 20.0);
            row["rtt_ns"] = rtt;
            row["reps"] = 0.into();
            row["dropped"] = 2.into();
            for figure in ["msgs_per_s", "limit_ns"] {
                row[figure] = serde_json::Value::Null;
            }
            row["runs_ns"] = serde_json::json!([]);
            row
        };
        let round_trips = serde_json::json!({"mean": null, "curve": null});
        let mut rows = [
            left_out("msg_pingpong", round_trips),
            left_out("tagged_bw", serde_json::Value::Null),
        ];
        let names = |pictures: &[Picture]| {
            let names = pictures.iter().map(|picture| picture.name.clone());
            names.collect::<Vec<_>>()
        };
        let drawn = draw(&serde_json::json!(rows));
        assert_eq!(names(&drawn), ["latency", "bandwidth", "rate", "spread"]);
        for picture in &drawn {
            let svg = picture.chart.svg();
            assert!(
                svg.contains("no figures: all 2 runs were left out"),
                "{svg}"
            );
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        rows[1]["reps"] = 1.into();
        rows[1]["msgs_per_s"] = 1e7.into();
        let drawn = draw(&serde_json::json!(rows));
        let has_note = |picture: &&Picture| picture.chart.subtitle.contains("left out");
        let empty: Vec<_> = drawn.iter().filter(has_note).cloned().collect();
        assert_eq!(names(&empty), ["latency", "spread"]);
    }

    #[test]
    fn the_subtitle_names_the_machine_and_the_number_of_runs() {
        let machine = serde_json::json!({"cpu": "one", "cores": 2, "kernel": "of them"});
        let rows = [row("tagged_bw", 8, 64, 20.0)];
        let report = serde_json::json!({"partial": true, "machine": machine, "rows": rows});
        let drawn = pictures(&[serde_json::from_value(report).unwrap()]);
        assert!(
            drawn[0]
                .chart
                .subtitle
                .contains("partial: the run was interrupted")
        );
        let drawn = draw(&serde_json::json!(rows));
        let subtitle = &drawn[0].chart.subtitle;
        assert_eq!(
            subtitle,
            "one, 2 cores, of them; medians of 3 runs, bands: 95 %"
        );
    }
}
