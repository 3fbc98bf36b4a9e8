//! The order of runs. Contestants take turns at every point, and the distance between the cores is
//! measured around every run.

use super::row::{Round, Row, Sample};
use super::{Contestant, Draft, Plan};
use crate::fabric::{Bench, BenchOrder};
use crate::limits::{Flow, Limits, Transport, cma_ns, distance, point_limit};
use crate::pair::Pair;
use crate::progress::Progress;

/// Measures every point of the plan, and puts each row into `draft` as soon as it is measured, in
/// the order of `contestants` at each point. Two contestants take turns A B B A. The processes of
/// `probe_pair`, which block meanwhile, measure the distance.
///
/// # Errors
/// As [`crate::pair::Pair::order`].
pub fn measure(
    plan: &Plan,
    probe_pair: &mut Pair,
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
            steps.describe(format!("{} {}", point.bench, crate::size::text(point.size)));
            let order = plan.order(*point);
            rounds_of[number].push(round(order, probe_pair, &turns, contestants)?);
            let rows = rows(&order, contestants, &rounds_of[number], limits);
            let lines: Vec<_> = rows.iter().map(Row::line).collect();
            // A row is in the report before it is printed, so that an interrupt does not lose it.
            draft.put(number, rows);
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

/// The indexes of the contestants that run in a round, in order. A drift of the machine affects
/// both of two alike.
fn turns(contestants: usize) -> Vec<usize> {
    match contestants {
        2 => vec![0, 1, 1, 0],
        count => (0..count).collect(),
    }
}

/// Measures one round at one point: the limit, then the contestants' runs.
fn round(
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
        bench if bench.is_pingpong() => Flow::RoundTrip,
        _ => Flow::Stream,
    };
    let mut before = distance(probe_pair)?;
    let transport = Transport::of(&contestants[0].opened.provider);
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
    fn two_contestants_take_turns_so_that_drift_cancels() {
        assert_eq!(turns(2), [0, 1, 1, 0]);
        assert_eq!(turns(1), [0]);
    }
}
