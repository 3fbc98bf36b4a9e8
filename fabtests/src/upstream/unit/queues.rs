//! `fi_eq_test`, `fi_cq_test` and `fi_cntr_test`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use selvedge::eq::{self, Event};
use selvedge::info::EpType;
use selvedge::{Caps, CompletionQueue, Context, Errno, EventQueue, cntr, cq, wait};
use selvedge_testkit::failure::unsupported;

use super::Cases;
use crate::suite::defect::registry;
use crate::upstream::options::Options;
use crate::upstream::setup::discover::hints;
use crate::upstream::setup::domain;

/// The length of a wait that must time out.
const PAUSE: Duration = Duration::from_millis(300);

fn info(options: &Options) -> anyhow::Result<selvedge::Info> {
    let hints = hints(options, Caps::empty(), EpType::Unspec)?;
    Ok(registry()?.infos(&hints)?.remove(0))
}

fn notification(number: u64) -> Event {
    Event::Notify {
        context: Context(number),
        data: number + 1,
        handle: 0,
    }
}

fn check_notification(event: &Event, number: u64) -> anyhow::Result<()> {
    match event {
        Event::Notify { context, data, .. } if context.0 == number && *data == number + 1 => Ok(()),
        other => bail!("event {number} is read as {other:?}"),
    }
}

/// Runs `fi_eq_test`: events of the application.
pub(in crate::upstream) fn eq_test(options: &Options) -> anyhow::Result<()> {
    let fabric = info(options)?.fabric()?;
    let open = |size: usize, wait_obj: wait::Object| -> anyhow::Result<Arc<dyn EventQueue>> {
        let mut attr = eq::Attr::default();
        attr.size = size;
        attr.wait_obj = wait_obj;
        Ok(fabric.eq(&attr)?)
    };
    let mut cases = Cases::default();
    cases.run("open", || {
        for power in 0..=16 {
            open(1 << power, wait::Object::None)?;
        }
        Ok(())
    });
    cases.run("write, peek and read", || {
        check_write_and_read(&*open(32, wait::Object::None)?)
    });
    cases.run("as many events as the size", || {
        let eq = open(32, wait::Object::None)?;
        for number in 0..32 {
            eq.write(notification(number))
                .with_context(|| format!("event {number} of 32"))?;
        }
        (0..32).try_for_each(|number| check_notification(&eq.read()?, number))
    });
    cases.run("file descriptor", || {
        check_descriptor(&*open(32, wait::Object::Fd)?)
    });
    cases.run("waiting", || check_wait(&*open(32, wait::Object::Fd)?));
    cases.run("no error", || {
        let eq = open(32, wait::Object::None)?;
        let error = eq.read_err();
        ensure!(matches!(error, Err(Errno::Again)), "{error:?}");
        Ok(())
    });
    cases.finish()
}

fn check_write_and_read(eq: &dyn EventQueue) -> anyhow::Result<()> {
    let empty = eq.read();
    ensure!(matches!(empty, Err(Errno::Again)), "{empty:?}");
    for number in 0..5 {
        eq.write(notification(number))?;
    }
    for number in 0..5 {
        check_notification(&eq.peek()?, number)?;
        check_notification(&eq.peek()?, number)?;
        check_notification(&eq.read()?, number)?;
    }
    let empty = eq.peek();
    ensure!(matches!(empty, Err(Errno::Again)), "{empty:?}");
    Ok(())
}

fn check_descriptor(eq: &dyn EventQueue) -> anyhow::Result<()> {
    let descriptor = eq
        .wait_fd()
        .context("the event queue has no file descriptor")?;
    let is_ready = || -> anyhow::Result<bool> {
        let mut polled = [PollFd::new(descriptor, PollFlags::POLLIN)];
        Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
    };
    eq.try_wait()
        .context("fi_trywait fails for an empty queue")?;
    ensure!(!is_ready()?, "the descriptor is ready without an event");
    eq.write(notification(1))?;
    let must_read = eq.try_wait() == Err(Errno::Again);
    ensure!(
        must_read || is_ready()?,
        "neither fi_trywait nor the descriptor reports the event"
    );
    check_notification(&eq.read()?, 1)?;
    eq.try_wait().context("fi_trywait fails for an empty queue")
}

fn check_wait(eq: &dyn EventQueue) -> anyhow::Result<()> {
    let start = Instant::now();
    let empty = eq.wait(Some(PAUSE));
    let waited = start.elapsed();
    ensure!(matches!(empty, Err(Errno::Again)), "{empty:?}");
    ensure!(
        waited >= PAUSE,
        "the wait took {waited:?}, less than its timeout of {PAUSE:?}"
    );
    eq.write(notification(2))?;
    check_notification(&eq.wait(Some(Duration::from_secs(60)))?, 2)
}

/// Runs `fi_cq_test`: empty completion queues.
pub(in crate::upstream) fn cq_test(options: &Options) -> anyhow::Result<()> {
    let info = info(options)?;
    let max = info.domain_attr.cq_cnt.min(options.number("L", 1024)?);
    let domain = domain::open(options, info)?;
    let open = |size: usize, wait_obj: wait::Object| {
        let mut attr = cq::Attr::with_size(size);
        attr.wait_obj = wait_obj;
        domain.domain().cq(&attr)
    };
    let mut cases = Cases::default();
    cases.run("open", || {
        for power in 0..=16 {
            let cq = open(1 << power, wait::Object::None)?;
            ensure!(
                cq.read(&mut [cq::Entry::default()]) == Ok(0),
                "a new completion queue is not empty"
            );
        }
        open(0, wait::Object::None)?;
        Ok(())
    });
    cases.run("many queues at once", || {
        let queues: Result<Vec<_>, _> = (0..max).map(|_| open(16, wait::Object::None)).collect();
        ensure!(queues?.len() == max, "fewer than {max} queues were opened");
        Ok(())
    });
    cases.run("no error", || {
        let cq = open(16, wait::Object::None)?;
        ensure!(
            matches!(cq.read_err(), Err(Errno::Again)),
            "a new completion queue has an error entry"
        );
        Ok(())
    });
    for wait_obj in [wait::Object::Unspec, wait::Object::Fd] {
        cases.run(&format!("a signal ends a wait, {wait_obj:?}"), || {
            check_signal(&open(16, wait_obj)?)
        });
    }
    cases.finish()
}

fn check_signal(cq: &Arc<dyn CompletionQueue>) -> anyhow::Result<()> {
    let start = Instant::now();
    let empty = cq.wait(&mut [cq::Entry::default()], Some(PAUSE));
    ensure!(
        empty == Err(Errno::Again) && start.elapsed() >= PAUSE,
        "a wait on an empty queue returns {empty:?} after {:?}, expected FI_EAGAIN after the timeout",
        start.elapsed()
    );
    let waiting_cq = Arc::clone(cq);
    let thread = std::thread::spawn(move || {
        waiting_cq.wait(&mut [cq::Entry::default()], Some(Duration::from_secs(3600)))
    });
    // If the thread does not wait yet, the queue stores the signal, or a later signal wakes the
    // thread.
    while !thread.is_finished() {
        cq.signal()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    match thread.join() {
        Ok(Err(Errno::Again | Errno::Canceled)) => Ok(()),
        other => bail!("the signalled wait returns {other:?}, expected FI_EAGAIN or FI_ECANCELED"),
    }
}

/// Runs `fi_cntr_test`: setting and adding to counters.
pub(in crate::upstream) fn cntr_test(options: &Options) -> anyhow::Result<()> {
    let info = info(options)?;
    let count = info.domain_attr.cntr_cnt.min(100) as u64;
    let domain = domain::open(options, info)?;
    let mut cases = Cases::default();
    cases.run("set, add and read", || {
        if count == 0 {
            return Err(unsupported("the domain has no counters"));
        }
        let attr = cntr::Attr::default();
        let counters: Result<Vec<_>, _> = (0..count).map(|_| domain.domain().cntr(&attr)).collect();
        let counters = counters?;
        for (cntr, index) in counters.iter().zip(0..) {
            ensure!(
                cntr.read() == 0 && cntr.read_err() == 0,
                "a new counter is not 0"
            );
            cntr.set(index);
            cntr.set_err(1000 + index);
        }
        for (cntr, index) in counters.iter().zip(0..) {
            cntr.add(index);
            cntr.add_err(index);
        }
        for (cntr, index) in counters.iter().zip(0..) {
            let numbers = (cntr.read(), cntr.read_err());
            ensure!(
                numbers == (2 * index, 1000 + 2 * index),
                "counter {index} has the values {numbers:?}, expected {:?}",
                (2 * index, 1000 + 2 * index)
            );
        }
        Ok(())
    });
    cases.run("a reached threshold ends a wait immediately", || {
        let mut attr = cntr::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let cntr = domain.domain().cntr(&attr)?;
        cntr.set(7);
        cntr.wait(7, Some(Duration::from_secs(60)))?;
        let start = Instant::now();
        let result = cntr.wait(8, Some(PAUSE));
        ensure!(
            result == Err(Errno::TimedOut) && start.elapsed() >= PAUSE,
            "a wait for an unreached threshold returns {result:?} after {:?}, expected FI_ETIMEDOUT",
            start.elapsed()
        );
        Ok(())
    });
    cases.finish()
}
