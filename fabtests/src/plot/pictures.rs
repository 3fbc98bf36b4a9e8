//! Which pictures a report makes: latency, bandwidth and rate against the size, each beside what the
//! machine can do, and how latencies are spread.

use super::axis::{Axis, Scale};
use super::chart::{Chart, Look, Series};
use crate::comparison::stored::{Report, Row};
use crate::timing::QUANTILES;

/// A chart, and the name of its file without an ending.
#[derive(Clone, Debug)]
pub struct Picture {
    /// As in `latency`.
    pub name: String,
    /// The chart.
    pub chart: Chart,
}

/// All pictures of some reports: what is not in any is left out.
pub fn pictures(reports: &[Report]) -> Vec<Picture> {
    let rows: Vec<&Row> = reports.iter().flat_map(|report| &report.rows).collect();
    let subtitle = reports.first().map_or_else(String::new, |report| {
        let machine = &report.machine;
        format!(
            "{}, {} cores, {}",
            machine.cpu, machine.cores, machine.kernel
        )
    });
    let against_size = QUESTIONS.iter().filter_map(|question| {
        let chart = question.chart(&rows, &subtitle)?;
        let name = question.name.to_owned();
        Some(Picture { name, chart })
    });
    against_size.chain(spread(&rows, &subtitle)).collect()
}

/// What is asked of every size.
struct Question {
    name: &'static str,
    title: &'static str,
    label: &'static str,
    scale: Scale,
    /// Which benchmarks answer it.
    of: fn(&Row) -> bool,
    /// The answer, for a message that takes so many nanoseconds.
    value: fn(&Row, f64) -> f64,
}

/// What a message takes at a limit, where it is known.
type Limit = fn(&Row) -> Option<f64>;

const QUESTIONS: [Question; 4] = [
    Question {
        name: "latency",
        title: "One way: half of a round trip",
        label: "time",
        scale: Scale::Nanoseconds,
        of: |row| row.rtt_ns.is_some(),
        value: |_, ns| ns,
    },
    Question {
        name: "bandwidth",
        title: "Bandwidth of a stream",
        label: "bandwidth",
        scale: Scale::BytesPerSecond,
        of: |row| row.rtt_ns.is_none() && row.window > 1,
        value: |row, ns| row.size as f64 * 1e9 / ns,
    },
    Question {
        name: "rate",
        title: "Messages of a stream",
        label: "messages",
        scale: Scale::PerSecond,
        of: |row| row.rtt_ns.is_none() && row.window > 1 && row.size <= 4096,
        value: |_, ns| 1e9 / ns,
    },
    Question {
        name: "accesses",
        title: "One access after the other: gets and atomics",
        label: "time",
        scale: Scale::Nanoseconds,
        of: |row| row.rtt_ns.is_none() && row.window == 1,
        value: |_, ns| ns,
    },
];

impl Question {
    fn chart(&self, rows: &[&Row], subtitle: &str) -> Option<Chart> {
        let rows: Vec<&Row> = rows.iter().copied().filter(|row| (self.of)(row)).collect();
        let mut series: Vec<_> = names(&rows)
            .into_iter()
            .enumerate()
            .map(|(number, name)| self.measured(&rows, number, name))
            .collect();
        if series.is_empty() {
            return None;
        }
        series.extend(self.limits(&rows));
        let xs = points(&series).map(|at| at.0).collect::<Vec<_>>();
        let ys = points(&series).map(|at| at.1).collect::<Vec<_>>();
        Some(Chart {
            title: self.title.to_owned(),
            subtitle: subtitle.to_owned(),
            x: Axis::over(Scale::Bytes, "size of a message, bytes", xs.into_iter()),
            y: Axis::over(self.scale, self.label, ys.into_iter()),
            series,
        })
    }

    fn measured(&self, rows: &[&Row], number: usize, name: String) -> Series {
        let own = rows.iter().filter(|row| row.name(rows) == name);
        let at = |row: &Row, ns| (self.value)(row, ns);
        let band = own.clone().map(|row| {
            let [low, high] = row.confidence();
            (at(row, low), at(row, high))
        });
        Series {
            look: Look::Measured(number),
            points: own
                .clone()
                .map(|row| (row.size as f64, at(row, row.message_ns())))
                .collect(),
            band: band.collect(),
            name,
        }
    }

    /// What the machine can do: a line for each kind of limit that the rows stand beside.
    fn limits(&self, rows: &[&Row]) -> Vec<Series> {
        let mut lines: Vec<(String, Vec<&Row>, Limit)> = Vec::new();
        for provider in providers(rows) {
            let own = rows.iter().copied().filter(|row| row.provider == provider);
            let name = format!("limit of the machine, {provider}");
            lines.push((name, own.collect(), |row| row.limit_ns));
        }
        lines.push(("one read by CMA".to_owned(), rows.to_vec(), |row| {
            row.cma_ns
        }));
        // Small copies are no limit of messages: they are as fast as calls.
        let large = rows.iter().copied().filter(|row| row.size >= 1024);
        lines.push(("memcpy in cache".to_owned(), large.collect(), |row| {
            row.memcpy_mbps.map(|mbps| row.size as f64 * 1e3 / mbps)
        }));
        let drawn = lines.into_iter().filter_map(|(name, rows, limit)| {
            let points = rows.iter().filter_map(|row| {
                let ns = limit(row).filter(|ns| *ns > 0.0)?;
                Some((row.size as f64, (self.value)(row, ns)))
            });
            let mut points: Vec<_> = points.collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            points.dedup_by(|one, other| one.0 == other.0);
            (points.len() > 1).then_some((name, points))
        });
        let series = drawn.enumerate().map(|(number, (name, points))| Series {
            name,
            look: Look::Limit(number),
            points,
            band: Vec::new(),
        });
        series.collect()
    }
}

/// The providers of some rows, in their order.
fn providers(rows: &[&Row]) -> Vec<String> {
    let mut providers: Vec<String> = Vec::new();
    for row in rows {
        if !providers.contains(&row.provider) {
            providers.push(row.provider.clone());
        }
    }
    providers
}

/// How the round trips of one size are spread: the smallest size that has been measured.
fn spread(rows: &[&Row], subtitle: &str) -> Option<Picture> {
    let with_curves = || rows.iter().filter(|row| row.curve().is_some());
    let size = with_curves().map(|row| row.size).min()?;
    let rows: Vec<&Row> = with_curves()
        .copied()
        .filter(|row| row.size == size)
        .collect();
    let series: Vec<_> = names(&rows)
        .into_iter()
        .enumerate()
        .filter_map(|(number, name)| {
            let row = rows.iter().find(|row| row.name(&rows) == name)?;
            let one_way = row.curve()?.map(|ns| ns / 2.0);
            let points = QUANTILES.into_iter().zip(one_way);
            Some(Series {
                name,
                look: Look::Measured(number),
                // The last of all has no place among the nines.
                points: points.filter(|(share, _)| *share < 1.0).collect(),
                band: Vec::new(),
            })
        })
        .collect();
    let ys = points(&series).map(|at| at.1).collect::<Vec<_>>();
    Some(Picture {
        name: "spread".to_owned(),
        chart: Chart {
            title: format!(
                "How many of the messages of {} bytes take no longer",
                crate::size::text(size)
            ),
            subtitle: subtitle.to_owned(),
            x: Axis::over(
                Scale::Nines,
                "share of the messages",
                QUANTILES[..QUANTILES.len() - 1].iter().copied(),
            ),
            y: Axis::over(Scale::Nanoseconds, "half of a round trip", ys.into_iter()),
            series,
        },
    })
}

/// Whose rows there are, in their order.
fn names(rows: &[&Row]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        let name = row.name(rows);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn points(series: &[Series]) -> impl Iterator<Item = (f64, f64)> {
    series
        .iter()
        .flat_map(|series| series.points.iter().copied())
}
