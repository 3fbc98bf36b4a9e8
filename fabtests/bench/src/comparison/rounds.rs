//! The order of runs: contestants take turns at every point, and the distance between the cores is
//! measured around every run.

use super::row::{Round, Row, Sample};
use super::{Contestant, Draft, Plan};
use crate::fabric::{Bench, BenchOrder};
use crate::limits::{Flow, Limits, Road, cma_ns, distance, point_limit};
use crate::pair::Pair;
use crate::progress::Progress;

/// Measures every point of the plan, and puts rows into `draft` as they come, in the order of
/// `contestants` at each point. Two contestants take turns A B B A. `gauge`'s processes, which
/// sleep meanwhile, measure the distance.
///
/// # Errors
/// As [`crate::pair::Pair::order`].
pub fn measure(
    plan: &Plan,
    gauge: &mut Pair,
    contestants: &mut [Contestant],
    limits: &Limits,
    draft: &Draft,
    progress: Progress,
) -> anyhow::Result<()> {
    let points = plan.points();
    let turns = turns(contestants.len());
    let rounds = (plan.reps * contestants.len()).div_ceil(turns.len());
    let steps = progress.steps("", points.len() * rounds);
    let mut rounds_of = vec![Vec::new(); points.len()];
    for _ in 0..rounds {
        for (number, point) in points.iter().enumerate() {
            steps.says(format!("{} {}", point.bench, crate::size::text(point.size)));
            let order = plan.order(*point);
            rounds_of[number].push(round(order, gauge, &turns, contestants)?);
            let rows = rows(&order, contestants, &rounds_of[number], limits);
            let lines: Vec<_> = rows.iter().map(Row::line).collect();
            // A row that was told of is in the report, if an interrupt comes now.
            draft.put(number, rows);
            steps.step_with(lines);
        }
    }
    Ok(())
}

/// What each contestant did at a point in the rounds so far.
fn rows(
    order: &BenchOrder,
    contestants: &[Contestant],
    rounds: &[Round],
    limits: &Limits,
) -> Vec<Row> {
    let numbered = contestants.iter().enumerate();
    numbered
        .map(|(number, contestant)| Row::new(order, contestant, number, rounds, limits))
        .collect()
}

/// Who runs in a round, one after the other. A drift of the machine hits both of two alike.
fn turns(contestants: usize) -> Vec<usize> {
    match contestants {
        2 => vec![0, 1, 1, 0],
        count => (0..count).collect(),
    }
}

/// One round at one point: the limit, then everybody's runs.
fn round(
    order: BenchOrder,
    gauge: &mut Pair,
    turns: &[usize],
    contestants: &mut [Contestant],
) -> anyhow::Result<Round> {
    let flow = match order.bench {
        Bench::RmaPut => Flow::Put,
        Bench::RmaGet => Flow::Get,
        Bench::RmaBw | Bench::RmaReadBw => Flow::Copies,
        Bench::AtomicAdd | Bench::AtomicFetchAdd => Flow::Add,
        bench if bench.is_pingpong() => Flow::ThereAndBack,
        _ => Flow::OneWay,
    };
    let mut before = distance(gauge)?;
    let road = Road::of(&contestants[0].opened.provider);
    let limit_ns = point_limit(gauge, road, flow, order.size, order.window)?;
    let mut after = distance(gauge)?;
    let limit = Sample::new(limit_ns, before, after);
    let cma_ns = match road {
        Road::Memory => cma_ns(gauge, order.size)?,
        Road::Sockets => None,
    };
    let mut runs = Vec::with_capacity(turns.len());
    for &who in turns {
        before = after;
        let timing = contestants[who].run(order)?;
        after = distance(gauge)?;
        runs.push((who, Sample::new(timing, before, after)));
    }
    Ok(Round {
        limit,
        cma_ns,
        runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_contestants_take_turns_so_that_drift_cancels() {
        assert_eq!(turns(2), [0, 1, 1, 0]);
        assert_eq!(turns(1), [0]);
    }
}
