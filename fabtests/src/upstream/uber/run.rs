//! Runs one configuration with each of its sizes.

use std::time::{Duration, Instant};

use super::atomics;
use super::case::{Class, Form, Operation, Test};
use super::messages;
use super::remote;
use super::side::Side;
use crate::upstream::data::perf::{Row, Table};

/// The iterations of a quick configuration.
const QUICK: usize = 5;
/// The iterations of other configurations with small, medium and large messages.
const SMALL: usize = 100;
const MEDIUM: usize = 10;
const LARGE: usize = 2;
/// The largest size of a quick configuration.
const QUICK_LARGEST: usize = 1 << 20;

/// Returns the sizes of messages: 16 bytes to 6 MiB; in quick configurations, every fourth size.
pub(super) fn sizes(is_quick: bool) -> Vec<usize> {
    let powers = (4..23).map(|power| 1_usize << power);
    let all = powers.flat_map(|size| [size, size + size / 2]);
    if is_quick {
        all.step_by(4)
            .filter(|&size| size <= QUICK_LARGEST)
            .collect()
    } else {
        all.collect()
    }
}

/// Returns whether the open provider supports the operation.
///
/// # Errors
/// As [`atomics::limit`].
pub(super) fn is_supported(side: &Side) -> anyhow::Result<bool> {
    match side.case.class {
        Class::Atomic => Ok(atomics::limit(side)?.is_some()),
        _ => Ok(true),
    }
}

/// Runs the configuration. The client prints a row for each measured size.
///
/// # Errors
/// The first failure.
pub(super) fn run(side: &mut Side, table: &mut Table) -> anyhow::Result<()> {
    if side.case.class == Class::Atomic {
        return run_atomic(side, table);
    }
    for size in sizes(side.case.is_quick) {
        if size > limit(side) {
            continue;
        }
        if side.case.test == Test::Unit {
            test_one(side, size)?;
            continue;
        }
        let count = count(side, size);
        let time = measure(side, size, count)?;
        print(side, table, size, count, time);
    }
    Ok(())
}

/// Returns the maximum length of a message of the call.
fn limit(side: &Side) -> usize {
    let info = side.endpoint().context.info();
    match side.case.function.form {
        Form::Inject => info.tx_attr.inject_size,
        _ => info.ep_attr.max_msg_size,
    }
}

fn test_one(side: &mut Side, size: usize) -> anyhow::Result<()> {
    match side.case.class {
        Class::Rma => remote::test_one(side, size),
        _ => messages::test_one(side, size),
    }
}

fn count(side: &Side, size: usize) -> usize {
    let default = match (side.case.is_quick, size) {
        (true, _) => QUICK,
        (false, 0..0x1_0000) => SMALL,
        (false, 0x1_0000..0x10_0000) => MEDIUM,
        (false, _) => LARGE,
    };
    side.options.iterations.unwrap_or(default).max(1)
}

fn measure(side: &mut Side, size: usize, count: usize) -> anyhow::Result<Duration> {
    match (side.case.class, side.case.test) {
        (Class::Rma, _) => {}
        (_, Test::Bandwidth) => messages::before_bandwidth(side)?,
        _ => messages::before_latency(side)?,
    }
    side.sync()?;
    let start = Instant::now();
    match (side.case.class, side.case.test) {
        (Class::Rma, Test::Bandwidth) => remote::bandwidth(side, size, count)?,
        (Class::Rma, _) => remote::latency(side, size, count)?,
        (_, Test::Bandwidth) => messages::bandwidth(side, size, count)?,
        _ => messages::latency(side, size, count)?,
    }
    let time = start.elapsed();
    side.sync()?;
    Ok(time)
}

fn run_atomic(side: &mut Side, table: &mut Table) -> anyhow::Result<()> {
    let max = atomics::limit(side)?.unwrap_or(0);
    if side.case.test == Test::Unit {
        return atomics::unit(side, max);
    }
    let size = side.case.datatype.size();
    let count = count(side, size);
    atomics::initialize(side);
    side.sync()?;
    let start = Instant::now();
    match side.case.test {
        Test::Bandwidth => atomics::bandwidth(side, count)?,
        _ => atomics::latency(side, count)?,
    }
    let time = start.elapsed();
    side.sync()?;
    print(side, table, size, count, time);
    Ok(())
}

fn print(side: &Side, table: &mut Table, size: usize, iterations: usize, time: Duration) {
    if !side.is_client() {
        return;
    }
    let is_message = side.case.function.operation == Operation::Send;
    let name = side.case.name();
    table.print(&Row {
        name: Some(&name),
        size,
        iterations,
        transfers: match side.case.test {
            Test::Bandwidth => side.window(),
            _ if is_message => 2,
            _ => 1,
        },
        time,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_configurations_have_every_fourth_size() {
        let all = sizes(false);
        assert_eq!((all.len(), all[0], all[37]), (38, 16, 6 << 20));
        let quick = sizes(true);
        assert_eq!(quick[..3], [16, 64, 256]);
        assert_eq!(quick[quick.len() - 1], 1 << 20);
    }
}
