//! The order of runs: contestants take turns at every point, and the distance between the cores is
//! measured around every run.

use super::row::{Round, Row, Sample};
use super::{Contestant, Plan};
use crate::fabric::{Bench, BenchOrder};
use crate::limits::{Flow, Limits, Road, cma_ns, distance, point_limit};
use crate::pair::Pair;
use crate::progress::Progress;

/// Measures every point of the plan. Two contestants take turns A B B A; the rows have the same
/// order as `contestants` at each point. `gauge`'s processes, which sleep meanwhile, measure the
/// distance.
///
/// # Errors
/// As [`crate::pair::Pair::order`].
pub fn measure(
    plan: &Plan,
    gauge: &mut Pair,
    contestants: &mut [Contestant],
    limits: &Limits,
    progress: Progress,
) -> anyhow::Result<Vec<Row>> {
    let points = plan.points();
    let turns = turns(contestants.len());
    let rounds = (plan.reps * contestants.len()).div_ceil(turns.len());
    let steps = progress.steps("", points.len() * rounds);
    let mut rounds_of = vec![Vec::new(); points.len()];
    for _ in 0..rounds {
        for (point, rounds) in points.iter().zip(&mut rounds_of) {
            steps.says(format!("{} {}", point.bench, crate::size::text(point.size)));
            rounds.push(round(plan.order(*point), gauge, &turns, contestants)?);
            steps.step();
        }
    }
    let mut rows = Vec::new();
    for (point, rounds) in points.iter().zip(&rounds_of) {
        let order = plan.order(*point);
        for (number, contestant) in contestants.iter().enumerate() {
            rows.push(Row::new(&order, contestant, number, rounds, limits));
        }
    }
    Ok(rows)
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
