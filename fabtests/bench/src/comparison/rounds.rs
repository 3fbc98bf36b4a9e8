//! The order of runs. Contestants take turns at every point, and the distance between the cores is
//! measured around every run.

use super::row::{Round, Row, Sample};
use super::{Contestant, Draft, Plan};
use crate::fabric::{Bench, BenchOrder};
use crate::limits::{Depth, Flow, Limits, Transport, cma_ns, distance, point_limit, survey};
use crate::machine::Machine;
use crate::output::progress::Progress;
use crate::pair::Pair;

/// Measurements of each limit, whose median counts.
const LIMIT_ROUNDS: usize = 3;

/// Measures the limits, and every point of the plan. Stores the rows of a point in `draft` after
/// each round, in the order of `contestants`. Contestants take turns A B B A. The processes of
/// `probe_pair` measure the limits and the distance, and block while the contestants run.
///
/// # Errors
/// As [`crate::pair::Pair::order`].
pub fn measure(
    plan: &Plan,
    mut probe_pair: Pair,
    contestants: &mut [Contestant],
    machine: Machine,
    draft: &Draft,
) -> anyhow::Result<()> {
    let (progress, pair) = (Progress::on_stderr(), &mut probe_pair);
    let limits = survey(pair, Depth::Report, &plan.sizes, LIMIT_ROUNDS, progress)?;
    draft.begin(machine, limits.clone());
    let points = plan.points();
    let turns = turn_order(contestants.len());
    let rounds = (plan.reps * contestants.len()).div_ceil(turns.len());
    let steps = progress.steps("", points.len() * rounds);
    let mut rounds_by_point = vec![Vec::new(); points.len()];
    for _ in 0..rounds {
        for (index, point) in points.iter().enumerate() {
            steps.describe(format!(
                "{} {}",
                point.bench,
                crate::measure::size::text(point.size)
            ));
            let order = plan.order(*point);
            rounds_by_point[index].push(measure_round(order, pair, &turns, contestants)?);
            let rows = rows(&order, contestants, &rounds_by_point[index], &limits);
            let lines: Vec<_> = rows.iter().map(Row::line).collect();
            // The draft has the rows before they are printed, so that an interrupt does not lose
            // them.
            draft.set_rows(index, rows);
            steps.step_with(lines);
        }
    }
    Ok(())
}

/// The row of each contestant at a point, from the rounds so far.
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

/// The indexes of the contestants in the order of their runs in a round: forwards, then backwards,
/// so that a drift of the machine's speed affects all alike.
fn turn_order(contestants: usize) -> Vec<usize> {
    match contestants {
        1 => vec![0],
        count => (0..count).chain((0..count).rev()).collect(),
    }
}

/// Measures one round at one point: the limit, then the contestants' runs.
fn measure_round(
    order: BenchOrder,
    probe_pair: &mut Pair,
    turns: &[usize],
    contestants: &mut [Contestant],
) -> anyhow::Result<Round> {
    let flow = match order.bench {
        Bench::RmaPut => Flow::Put,
        Bench::RmaGet => Flow::Get,
        Bench::RmaBw | Bench::RmaReadBw => Flow::Copies,
        Bench::AtomicAdd | Bench::AtomicFetchAdd => Flow::Add,
        bench if bench.is_pingpong() || bench.is_timed_singly() => Flow::RoundTrip,
        _ => Flow::Stream,
    };
    let mut before = distance(probe_pair)?;
    let transport = Transport::of_provider(&contestants[0].opened.provider);
    let limit_ns = point_limit(probe_pair, transport, flow, order.size, order.window)?;
    let mut after = distance(probe_pair)?;
    let limit = Sample::new(limit_ns, before, after);
    let cma_ns = match transport {
        Transport::Memory => cma_ns(probe_pair, order.size)?,
        Transport::Sockets => None,
    };
    let mut runs = Vec::with_capacity(turns.len());
    for &index in turns {
        before = after;
        let timing = contestants[index].run(order)?;
        after = distance(probe_pair)?;
        runs.push((index, Sample::new(timing, before, after)));
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
    fn contestants_take_turns_so_that_drift_cancels() {
        assert_eq!(turn_order(2), [0, 1, 1, 0]);
        assert_eq!(turn_order(3), [0, 1, 2, 2, 1, 0]);
        assert_eq!(turn_order(1), [0]);
    }
}
