//! Barriers and idle waits of any number of contexts, possibly more than processors.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use selvedge_cheetah::{Controller, Error, Result};

const ROUNDS: usize = 15;
const BARRIERS: usize = 200;
const WAIT: Duration = Duration::from_secs(2);

pub(crate) fn measure(controller: &Controller) -> Result {
    let shares = Rc::new(RefCell::new(Vec::new()));
    let received = Rc::clone(&shares);
    let report_share = controller.register("report_share", move |_, call| {
        received
            .borrow_mut()
            .push(*bytemuck::from_bytes::<f64>(call.bytes));
    })?;
    controller.barrier()?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..BARRIERS {
            controller.barrier()?;
        }
        times.push(start.elapsed().as_nanos() as f64 / BARRIERS as f64 / 1000.0);
    }
    let share = wait_without_event(controller)?;
    controller.ainvoke(0, report_share, bytemuck::bytes_of(&share))?;
    controller.barrier()?;
    if controller.mycontext() == 0 {
        times.sort_unstable_by(f64::total_cmp);
        let (median, contexts) = (times[ROUNDS / 2], controller.ncontexts());
        let used: f64 = shares.borrow().iter().sum();
        println!(
            "barrier of {contexts}: {median:.2} us, at worst {:.2} us",
            times[ROUNDS - 1]
        );
        println!(
            "{contexts} waiting contexts together use {:.2} % of a processor",
            used * 100.0
        );
    }
    controller.finalize()
}

/// Returns the fraction of a wait without an event during which this context uses a processor.
fn wait_without_event(controller: &Controller) -> Result<f64> {
    let bell = controller.bell()?;
    controller.barrier()?;
    let time_before = processor_time();
    match controller.wait_for(&bell, 1, WAIT) {
        Err(Error::TimedOut { .. }) => {}
        waited => waited?,
    }
    Ok((processor_time() - time_before).as_secs_f64() / WAIT.as_secs_f64())
}

fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
