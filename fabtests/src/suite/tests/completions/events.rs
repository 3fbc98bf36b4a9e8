//! Event queues, fi_eq(3).

use std::time::{Duration, Instant};

use selvedge::eq::{self, Event};
use selvedge::{Caps, Context, Errno, EventQueue, wait};

use crate::suite::context::check::{holds, same};
use crate::suite::context::timeout::limit;
use crate::suite::context::{RAW, Result, Test, TestContext};
use crate::suite::defect::Defect;

tests! {
    in_order(Caps::MSG) catches [EventPeekConsumes, LosesEvents] .apis(RAW).processes(1);
    full(Caps::MSG) catches [LosesEvents] .apis(RAW).processes(1);
    waits(Caps::MSG) catches [NeverWakes] .apis(RAW).processes(1);
}

fn open_queue(
    ctx: &TestContext,
    size: usize,
    wait: wait::Object,
) -> Result<std::sync::Arc<dyn EventQueue>> {
    let info = ctx.info_for(&ctx.hints())?;
    let mut attr = eq::Attr::default();
    (attr.size, attr.wait_obj) = (size, wait);
    Ok(info.fabric()?.eq(&attr)?)
}

fn make_event(number: u64) -> Event {
    Event::Notify {
        context: Context(number),
        data: number * 3,
        handle: number * 5,
    }
}

/// Returns the number of an event that the application wrote.
fn event_number(event: &Event) -> Option<u64> {
    match event {
        Event::Notify {
            context,
            data,
            handle,
        } if (*data, *handle) == (context.0 * 3, context.0 * 5) => Some(context.0),
        _ => None,
    }
}

/// Events are read in order, once; a peek leaves the event in the queue.
fn in_order(ctx: &mut TestContext) -> Result {
    let queue = open_queue(ctx, 64, wait::Object::None)?;
    same("reading nothing", queue.read().err(), Some(Errno::Again))?;
    same("peeking at nothing", queue.peek().err(), Some(Errno::Again))?;
    same(
        "reading an error of an empty queue",
        queue.read_err().err(),
        Some(Errno::Again),
    )?;
    for number in 0..20 {
        queue.write(make_event(number))?;
    }
    for expected in 0..20 {
        for _ in 0..2 {
            same("a peek", event_number(&queue.peek()?), Some(expected))?;
        }
        same("a read", event_number(&queue.read()?), Some(expected))?;
    }
    same(
        "reading after the last event",
        queue.read().err(),
        Some(Errno::Again),
    )
}

/// A queue accepts as many events as its size, and loses none.
fn full(ctx: &mut TestContext) -> Result {
    for size in [1, 8, 32] {
        let queue = open_queue(ctx, size, wait::Object::None)?;
        let mut written = 0;
        while written < 10_000 && queue.write(make_event(written)).is_ok() {
            written += 1;
        }
        holds(
            format!("{written} fit into a queue of {size}"),
            written >= size as u64,
        )?;
        for expected in 0..written {
            same("a read", event_number(&queue.read()?), Some(expected))?;
        }
        same(
            "reading after the last event",
            queue.read().err(),
            Some(Errno::Again),
        )?;
    }
    Ok(())
}

/// A wait ends with an event of another thread, or with its timeout.
fn waits(ctx: &mut TestContext) -> Result {
    let queue = open_queue(ctx, 8, wait::Object::Unspec)?;
    let (time, start) = (Duration::from_millis(40), Instant::now());
    same(
        "a wait for nothing",
        queue.wait(Some(time)).err(),
        Some(Errno::Again),
    )?;
    holds("the wait lasts until its timeout", start.elapsed() >= time)?;
    for expected in 0..20 {
        let result = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| queue.wait(Some(limit())));
            if expected % 2 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let written = queue.write(make_event(expected));
            waiter.join().map(|event| written.and(event))
        });
        let event = result.map_err(|_| anyhow::anyhow!("the waiter has panicked"))?;
        same(
            "the event of another thread",
            event.ok().as_ref().and_then(event_number),
            Some(expected),
        )?;
    }
    Ok(())
}
