//! Matching handlers.

use std::cell::RefCell;
use std::rc::Rc;

use selvedge_cheetah::serialize::Array;
use selvedge_cheetah::{Controller, MatchingHandler, Result};

pub(crate) const SCENARIOS: &[(&str, super::Scenario)] = &[
    ("matching", matching),
    ("handlers", handlers),
    ("early", early),
    ("counts", counts),
    ("arguments", arguments),
    ("fabrics", fabrics),
];

/// Contexts send messages and post requests in mixed order. Each request gets one message of its
/// sender and tag, in order.
fn matching(controller: &Controller, args: &[String]) -> Result {
    let times: u64 = args[0].parse().expect("a number");
    let size = controller.ncontexts();
    let handler = MatchingHandler::new(controller)?;
    let bell = controller.bell()?;
    let seen = Rc::new(RefCell::new(Vec::new()));
    for number in 0..times {
        let tag = (number % 5) as i32;
        for to in 0..size {
            handler.send(to, tag, &vec![number; 1 + number as usize % 400])?;
        }
        // Some requests precede their messages, some follow.
        if number % 3 != 0 {
            continue;
        }
        for earlier in number.saturating_sub(2)..=number {
            request(&handler, size, earlier, &bell, &seen)?;
        }
    }
    let rest = (times - 1) % 3;
    for number in times - rest..times {
        request(&handler, size, number, &bell, &seen)?;
    }
    controller.wait(&bell, (times as usize * size) as i32)?;
    assert_eq!((handler.actions(None), handler.messages(None)), (0, 0));
    let seen = seen.borrow();
    for from in 0..size {
        for tag in 0..5 {
            let numbers: Vec<u64> = seen
                .iter()
                .filter(|row: &&(usize, u64)| row.0 == from && row.1 % 5 == tag)
                .map(|row| row.1)
                .collect();
            assert!(numbers.is_sorted() && !numbers.is_empty(), "{numbers:?}");
        }
    }

    controller.barrier()
}

type Seen = Rc<RefCell<Vec<(usize, u64)>>>;

fn request(
    handler: &MatchingHandler,
    size: usize,
    number: u64,
    bell: &selvedge_cheetah::Bell,
    seen: &Seen,
) -> Result {
    for from in 0..size {
        let (ring, seen) = (bell.clone(), Rc::clone(seen));
        handler.request::<Vec<u64>>(from, (number % 5) as i32, move |_, row| {
            assert!(row.iter().all(|&value| value == row[0]));
            assert_eq!(row.len(), 1 + row[0] as usize % 400);
            seen.borrow_mut().push((from, row[0]));
            ring.set(ring.value() + 1);
        })?;
    }
    Ok(())
}

/// Two handlers with the same tags do not see each other's messages.
fn handlers(controller: &Controller, _: &[String]) -> Result {
    let size = controller.ncontexts();
    let (one, two) = (
        MatchingHandler::new(controller)?,
        MatchingHandler::new(controller)?,
    );
    let bell = controller.bell()?;
    for to in 0..size {
        two.send(to, 1, &22_u32)?;
        one.send(to, 1, &11_u32)?;
    }
    for from in 0..size {
        for (handler, expected) in [(&one, 11), (&two, 22)] {
            let ring = bell.clone();
            handler.request::<u32>(from, 1, move |_, &value| {
                assert_eq!(value, expected);
                ring.set(ring.value() + 1);
            })?;
        }
    }
    controller.wait(&bell, 2 * size as i32)?;
    controller.barrier()
}

/// Returns the text of the message with this number. Some texts are short; others are so long that
/// they stay in their receive buffer.
fn early_text(number: i32) -> String {
    format!("{number}").repeat([1, 40, 500][number as usize % 3])
}

/// More messages than receive buffers are queued for a handler that is not constructed yet.
fn early(controller: &Controller, _: &[String]) -> Result {
    const COUNT: i32 = 300;
    let size = controller.ncontexts();
    let bell = controller.bell()?;
    if controller.mycontext() != 0 {
        let handler = MatchingHandler::new(controller)?;
        for number in 0..COUNT {
            handler.send(0, number, &early_text(number))?;
        }
        return controller.barrier();
    }
    let until = std::time::Instant::now() + std::time::Duration::from_millis(100);
    while std::time::Instant::now() < until {
        controller.poll()?;
    }
    let handler = MatchingHandler::new(controller)?;
    for from in 1..size {
        for number in 0..COUNT {
            let ring = bell.clone();
            handler.request::<String>(from, number, move |_, text| {
                assert_eq!(text, early_text(number));
                ring.set(ring.value() + 1);
            })?;
        }
    }
    controller.wait(&bell, (size as i32 - 1) * COUNT)?;
    controller.barrier()
}

fn counts(controller: &Controller, _: &[String]) -> Result {
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let handler = MatchingHandler::new(controller)?;
    let next = (rank + 1) % size;
    let previous = (rank + size - 1) % size;
    for tag in 0..7 {
        handler.send(next, tag, &tag)?;
    }
    while handler.messages(None) < 7 {
        controller.poll()?;
    }
    assert_eq!(
        (handler.messages(Some(previous)), handler.actions(None)),
        (7, 0)
    );
    for tag in 5..10 {
        handler.request::<i32>(previous, tag, move |_, &value| assert_eq!(value, tag))?;
    }
    controller.poll()?;
    assert_eq!(
        (handler.messages(None), handler.actions(Some(previous))),
        (5, 3)
    );
    assert_eq!(handler.actions(Some(size)), 0);
    controller.barrier()
}

/// Sends messages with zero to four arguments, with large values, and with the format [`Array`].
fn arguments(controller: &Controller, _: &[String]) -> Result {
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let handler = MatchingHandler::new(controller)?;
    let bell = controller.bell()?;
    let large = vec![rank as f64; 100_000];
    handler.send(next, 0, &())?;
    handler.send(next, 1, &(1_u8,))?;
    handler.send(next, 2, &(1_u8, 2.5_f64))?;
    handler.send(next, 3, &(1_u8, 2.5_f64, "three".to_owned()))?;
    handler.send(next, 4, &(1_u8, 2.5_f64, "four".to_owned(), &large))?;
    handler.send_with::<Array, [f64]>(next, 5, &large)?;
    let ring = || {
        let bell = bell.clone();
        move || bell.set(bell.value() + 1)
    };
    let ring_bell = ring();
    handler.request::<()>(previous, 0, move |_, ()| ring_bell())?;
    let ring_bell = ring();
    handler.request::<(u8,)>(previous, 1, move |_, (one,)| {
        assert_eq!(*one, 1);
        ring_bell();
    })?;
    let ring_bell = ring();
    handler.request::<(u8, f64)>(previous, 2, move |_, (_, two)| {
        assert_eq!(*two, 2.5);
        ring_bell();
    })?;
    let ring_bell = ring();
    handler.request::<(u8, f64, String)>(previous, 3, move |_, (_, _, three)| {
        assert_eq!(three, "three");
        ring_bell();
    })?;
    let ring_bell = ring();
    handler.request::<(u8, f64, String, Vec<f64>)>(previous, 4, move |_, (_, _, four, row)| {
        assert_eq!((four, row), ("four", &vec![previous as f64; 100_000][..]));
        ring_bell();
    })?;
    let ring_bell = ring();
    handler.request_with::<Array, [f64]>(previous, 5, move |_, row| {
        assert_eq!(row, vec![previous as f64; 100_000]);
        ring_bell();
    })?;
    controller.wait(&bell, 6)?;
    controller.barrier()
}

/// The controller uses the providers that the arguments name.
fn fabrics(controller: &Controller, args: &[String]) -> Result {
    assert_eq!(controller.fabrics(), args);
    controller.barrier()
}
