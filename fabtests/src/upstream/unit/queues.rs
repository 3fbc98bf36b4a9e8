//! `fi_eq_test`, `fi_cq_test`, `fi_cntr_test`.

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
use crate::upstream::discover::hints;
use crate::upstream::ground;
use crate::upstream::options::Options;

/// How long a wait for nothing takes.
const PAUSE: Duration = Duration::from_millis(300);

fn info(options: &Options) -> anyhow::Result<selvedge::Info> {
    let hints = hints(options, Caps::empty(), EpType::Unspec)?;
    Ok(registry()?.infos(&hints)?.remove(0))
}

fn note(number: u64) -> Event {
    Event::Notify {
        context: Context(number),
        data: number + 1,
        handle: 0,
    }
}

fn is_note(event: &Event, number: u64) -> anyhow::Result<()> {
    match event {
        Event::Notify { context, data, .. } if context.0 == number && *data == number + 1 => Ok(()),
        other => bail!("event {number} is {other:?}"),
    }
}

/// `fi_eq_test`: events of the application's own.
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
    cases.run("write, look and read", || {
        written_and_read(&*open(32, wait::Object::None)?)
    });
    cases.run("as many events as the size says", || {
        let eq = open(32, wait::Object::None)?;
        for number in 0..32 {
            eq.write(note(number))
                .with_context(|| format!("event {number} of 32"))?;
        }
        (0..32).try_for_each(|number| is_note(&eq.read()?, number))
    });
    cases.run("the descriptor", || {
        at_descriptor(&*open(32, wait::Object::Fd)?)
    });
    cases.run("waiting", || waited_for(&*open(32, wait::Object::Fd)?));
    cases.run("no error", || {
        let eq = open(32, wait::Object::None)?;
        let error = eq.read_err();
        ensure!(matches!(error, Err(Errno::Again)), "{error:?}");
        Ok(())
    });
    cases.end()
}

fn written_and_read(eq: &dyn EventQueue) -> anyhow::Result<()> {
    let nothing = eq.read();
    ensure!(matches!(nothing, Err(Errno::Again)), "{nothing:?}");
    for number in 0..5 {
        eq.write(note(number))?;
    }
    for number in 0..5 {
        is_note(&eq.peek()?, number)?;
        is_note(&eq.peek()?, number)?;
        is_note(&eq.read()?, number)?;
    }
    let nothing = eq.peek();
    ensure!(matches!(nothing, Err(Errno::Again)), "{nothing:?}");
    Ok(())
}

fn at_descriptor(eq: &dyn EventQueue) -> anyhow::Result<()> {
    let descriptor = eq.wait_fd().context("no descriptor")?;
    let is_ready = || -> anyhow::Result<bool> {
        let mut polled = [PollFd::new(descriptor, PollFlags::POLLIN)];
        Ok(poll(&mut polled, PollTimeout::ZERO)? > 0)
    };
    eq.try_wait().context("fi_trywait of an empty queue")?;
    ensure!(!is_ready()?, "ready for nothing");
    eq.write(note(1))?;
    let must_read = eq.try_wait() == Err(Errno::Again);
    ensure!(must_read || is_ready()?, "nobody is told of an event");
    is_note(&eq.read()?, 1)?;
    eq.try_wait().context("fi_trywait of an empty queue")
}

fn waited_for(eq: &dyn EventQueue) -> anyhow::Result<()> {
    let start = Instant::now();
    let nothing = eq.wait(Some(PAUSE));
    let waited = start.elapsed();
    ensure!(matches!(nothing, Err(Errno::Again)), "{nothing:?}");
    ensure!(waited >= PAUSE, "waited for {waited:?} of {PAUSE:?}");
    eq.write(note(2))?;
    is_note(&eq.wait(Some(Duration::from_secs(60)))?, 2)
}

/// `fi_cq_test`: completion queues, empty ones.
pub(in crate::upstream) fn cq_test(options: &Options) -> anyhow::Result<()> {
    let info = info(options)?;
    let most = info.domain_attr.cq_cnt.min(options.number("L", 1024)?);
    let ground = ground::open(options, info)?;
    let open = |size: usize, wait_obj: wait::Object| {
        let mut attr = cq::Attr::with_size(size);
        attr.wait_obj = wait_obj;
        ground.domain().cq(&attr)
    };
    let mut cases = Cases::default();
    cases.run("open", || {
        for power in 0..=16 {
            let cq = open(1 << power, wait::Object::None)?;
            ensure!(
                cq.read(&mut [cq::Entry::default()]) == Ok(0),
                "it is not empty"
            );
        }
        open(0, wait::Object::None)?;
        Ok(())
    });
    cases.run("many at once", || {
        let all: Result<Vec<_>, _> = (0..most).map(|_| open(16, wait::Object::None)).collect();
        ensure!(all?.len() == most, "not {most}");
        Ok(())
    });
    cases.run("no error", || {
        let cq = open(16, wait::Object::None)?;
        ensure!(matches!(cq.read_err(), Err(Errno::Again)), "there is one");
        Ok(())
    });
    for wait_obj in [wait::Object::Unspec, wait::Object::Fd] {
        cases.run(&format!("a signal wakes, {wait_obj:?}"), || {
            woken(&open(16, wait_obj)?)
        });
    }
    cases.end()
}

fn woken(cq: &Arc<dyn CompletionQueue>) -> anyhow::Result<()> {
    let start = Instant::now();
    let nothing = cq.wait(&mut [cq::Entry::default()], Some(PAUSE));
    ensure!(
        nothing == Err(Errno::Again) && start.elapsed() >= PAUSE,
        "{nothing:?} after {:?}",
        start.elapsed()
    );
    let sleeper = Arc::clone(cq);
    let thread = std::thread::spawn(move || {
        sleeper.wait(&mut [cq::Entry::default()], Some(Duration::from_secs(3600)))
    });
    // It may not sleep yet: then the signal is kept, or the next one finds it asleep.
    while !thread.is_finished() {
        cq.signal()?;
        std::thread::sleep(Duration::from_millis(1));
    }
    match thread.join() {
        Ok(Err(Errno::Again | Errno::Canceled)) => Ok(()),
        other => bail!("who is woken learns {other:?}"),
    }
}

/// `fi_cntr_test`: counters that are set and added to.
pub(in crate::upstream) fn cntr_test(options: &Options) -> anyhow::Result<()> {
    let info = info(options)?;
    let count = info.domain_attr.cntr_cnt.min(100) as u64;
    let ground = ground::open(options, info)?;
    let mut cases = Cases::default();
    cases.run("set, add and read", || {
        if count == 0 {
            return Err(unsupported("there are no counters"));
        }
        let attr = cntr::Attr::default();
        let all: Result<Vec<_>, _> = (0..count).map(|_| ground.domain().cntr(&attr)).collect();
        let all = all?;
        for (cntr, at) in all.iter().zip(0..) {
            ensure!(
                cntr.read() == 0 && cntr.read_err() == 0,
                "it is not 0 at first"
            );
            cntr.set(at);
            cntr.set_err(1000 + at);
        }
        for (cntr, at) in all.iter().zip(0..) {
            cntr.add(at);
            cntr.add_err(at);
        }
        for (cntr, at) in all.iter().zip(0..) {
            let numbers = (cntr.read(), cntr.read_err());
            ensure!(
                numbers == (2 * at, 1000 + 2 * at),
                "counter {at}: {numbers:?}"
            );
        }
        Ok(())
    });
    cases.run("what is reached is not waited for", || {
        let mut attr = cntr::Attr::default();
        attr.wait_obj = wait::Object::Unspec;
        let cntr = ground.domain().cntr(&attr)?;
        cntr.set(7);
        cntr.wait(7, Some(Duration::from_secs(60)))?;
        let start = Instant::now();
        let late = cntr.wait(8, Some(PAUSE));
        ensure!(
            late == Err(Errno::TimedOut) && start.elapsed() >= PAUSE,
            "{late:?} after {:?}",
            start.elapsed()
        );
        Ok(())
    });
    cases.end()
}
