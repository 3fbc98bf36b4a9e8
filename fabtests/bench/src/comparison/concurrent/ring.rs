//! A ring of more processes than cores, beside threads that compute without end.
//!
//! In an exchange, a process sends a message to its right neighbour and receives one from its left
//! neighbour. It waits by polling, as ranks of MPI do. Where processes share a core, the time of an
//! exchange depends on whether a process that waits lets the others run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::order_concurrently;
use crate::comparison::{Contestant, Measured, Runner};
use crate::fabric::{BenchOrder, OpenOrder, Opened};
use crate::machine::cpu::{Placement, pin};
use crate::measure::timing::Timing;
use crate::pair::{Order, Pair, RunResult};

/// The processes of a ring, two of each pair, and the number of their neighbours on the cores.
#[derive(Debug)]
pub struct Ring {
    pairs: Vec<Pair>,
    placement: Placement,
    neighbours: usize,
}

impl Ring {
    /// Has the processes open their endpoints and connects each to its right neighbour.
    /// `neighbours` threads compute on the cores of `placement` during each run.
    ///
    /// # Errors
    /// As [`Pair::order`].
    pub fn open(
        implementation: String,
        config: String,
        mut pairs: Vec<Pair>,
        order: &OpenOrder,
        (placement, neighbours): (Placement, usize),
    ) -> anyhow::Result<Contestant> {
        let mut opened = Vec::new();
        for pair in &mut pairs {
            for reply in pair.order(&Order::Open(order.clone()))? {
                opened.push(serde_json::from_value::<Opened>(reply)?);
            }
        }
        let right = |index: usize| Order::Peer(opened[(index + 1) % opened.len()].address.clone());
        order_concurrently(&mut pairs, |number, pair| {
            let orders = [right(2 * number), right(2 * number + 1)];
            pair.order_each([&orders[0], &orders[1]])
        })?;
        let first = opened.swap_remove(0);
        let ring = Self {
            pairs,
            placement,
            neighbours,
        };
        Ok(Contestant::new(implementation, first, Box::new(ring)).with_config(config))
    }
}

impl Runner for Ring {
    fn run(&mut self, order: BenchOrder) -> anyhow::Result<Measured> {
        let over = AtomicBool::new(false);
        let replies = thread::scope(|scope| {
            for neighbour in 0..self.neighbours {
                let (over, placement) = (&over, self.placement);
                scope.spawn(move || compute_until(over, placement, neighbour));
            }
            let replies =
                order_concurrently(&mut self.pairs, |_, pair| pair.order(&Order::Bench(order)));
            over.store(true, Ordering::Relaxed);
            replies
        })?;
        let results = replies
            .into_iter()
            .flatten()
            .map(serde_json::from_value::<RunResult>)
            .collect::<Result<Vec<_>, _>>()?;
        let timings: Vec<Timing> = results.iter().map(|ran| ran.timing).collect();
        let cores = results
            .iter()
            .map(|ran| ran.cpu_ns as f64 / ran.taken_ns().max(1) as f64)
            .sum();
        Ok(Measured {
            timing: Timing::mean_of(&timings),
            cores: Some(cores),
            waiting_cpu: None,
        })
    }
}

/// Computes on a core of the placement until `over`.
fn compute_until(over: &AtomicBool, placement: Placement, neighbour: usize) {
    if let Some(cores) = placement.cores() {
        // A thread that cannot be pinned computes on any core.
        let _ = pin(cores[neighbour % cores.len()]);
    }
    while !over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}
