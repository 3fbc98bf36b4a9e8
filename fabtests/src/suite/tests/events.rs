//! Event queues, fi_eq(3).

use std::time::{Duration, Instant};

use selvedge::eq::{self, Event};
use selvedge::{Caps, Context, Errno, EventQueue, wait};

use crate::suite::cx::check::{holds, same};
use crate::suite::cx::timeout::limit;
use crate::suite::cx::{Cx, RAW, Result, Test};
use crate::suite::flaw::Flaw;

tests! {
    in_order(Caps::MSG) catches [PeekTakes, LosesEvents] .faces(RAW).processes(1);
    full(Caps::MSG) catches [LosesEvents] .faces(RAW).processes(1);
    waits(Caps::MSG) catches [NeverWakes] .faces(RAW).processes(1);
}

fn open(cx: &Cx, size: usize, wait: wait::Object) -> Result<std::sync::Arc<dyn EventQueue>> {
    let info = cx.info_for(&cx.hints())?;
    let mut attr = eq::Attr::default();
    (attr.size, attr.wait_obj) = (size, wait);
    Ok(info.fabric()?.eq(&attr)?)
}

fn event(number: u64) -> Event {
    Event::Notify {
        context: Context(number),
        data: number * 3,
        handle: number * 5,
    }
}

/// The number of an event that the application wrote.
fn number(event: &Event) -> Option<u64> {
    match event {
        Event::Notify {
            context,
            data,
            handle,
        } if (*data, *handle) == (context.0 * 3, context.0 * 5) => Some(context.0),
        _ => None,
    }
}

/// Events come in their order, once; a look leaves them.
fn in_order(cx: &mut Cx) -> Result {
    let queue = open(cx, 64, wait::Object::None)?;
    same("reading nothing", queue.read().err(), Some(Errno::Again))?;
    same("looking at nothing", queue.peek().err(), Some(Errno::Again))?;
    same(
        "an error that is not there",
        queue.read_err().err(),
        Some(Errno::Again),
    )?;
    for event_number in 0..20 {
        queue.write(event(event_number))?;
    }
    for expected in 0..20 {
        for _ in 0..2 {
            same("a look", number(&queue.peek()?), Some(expected))?;
        }
        same("a read", number(&queue.read()?), Some(expected))?;
    }
    same(
        "reading behind the last",
        queue.read().err(),
        Some(Errno::Again),
    )
}

/// As many as the size are taken, and none is lost.
fn full(cx: &mut Cx) -> Result {
    for size in [1, 8, 32] {
        let queue = open(cx, size, wait::Object::None)?;
        let mut written = 0;
        while written < 10_000 && queue.write(event(written)).is_ok() {
            written += 1;
        }
        holds(
            format!("{written} fit into a queue of {size}"),
            written >= size as u64,
        )?;
        for expected in 0..written {
            same("a read", number(&queue.read()?), Some(expected))?;
        }
        same(
            "reading behind the last",
            queue.read().err(),
            Some(Errno::Again),
        )?;
    }
    Ok(())
}

/// A wait ends with an event of another thread, or with the time.
fn waits(cx: &mut Cx) -> Result {
    let queue = open(cx, 8, wait::Object::Unspec)?;
    let (time, start) = (Duration::from_millis(40), Instant::now());
    same(
        "a wait for nothing",
        queue.wait(Some(time)).err(),
        Some(Errno::Again),
    )?;
    holds("it has taken its time", start.elapsed() >= time)?;
    for expected in 0..20 {
        let waited = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.wait(Some(limit())));
            if expected % 2 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let written = queue.write(event(expected));
            waiter.join().map(|waited| written.and(waited))
        });
        let waited = waited.map_err(|_| anyhow::anyhow!("the waiter has panicked"))?;
        same(
            "what was waited for",
            waited.ok().as_ref().and_then(number),
            Some(expected),
        )?;
    }
    Ok(())
}
