//! Invocations, and the calls of the library in which they run.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use selvedge_cheetah::{Controller, Error, FunctionId, Result};

use crate::exchange::pattern;

pub(crate) const SCENARIOS: &[(&str, super::Scenario)] = &[
    ("payloads", payloads),
    ("fifo", fifo),
    ("nested", nested),
    ("chain", chain),
    ("flood", flood),
    ("no-polls", no_polls),
    ("typed", typed),
    ("parcels", parcels),
    ("unknown", unknown),
    ("ordinals", ordinals),
    ("handlers-within-calls", handlers_within_calls),
    ("threads", threads),
    ("thread-mode", thread_mode),
];

/// Returns two handles of one bell: a function rings the first, the scenario waits on the second.
fn counter(controller: &Controller) -> Result<(selvedge_cheetah::Bell, selvedge_cheetah::Bell)> {
    let bell = controller.bell()?;
    Ok((bell.clone(), bell))
}

/// Sends payloads from 0 bytes to 64 MiB to all contexts. They arrive aligned, and the caller
/// overwrites each at return.
fn payloads(controller: &Controller, _: &[String]) -> Result {
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let sizes = [
        0,
        1,
        15,
        16,
        17,
        100,
        4047,
        4048,
        4049,
        70_000,
        1 << 20,
        64 << 20,
    ];
    let (ring, bell) = counter(controller)?;
    let counts = RefCell::new(vec![0_usize; size]);
    let receive = controller.register("take", move |controller, call| {
        let nth = counts.borrow()[call.from];
        counts.borrow_mut()[call.from] += 1;
        assert_eq!(call.bytes.as_ptr().addr() % 16, 0);
        assert_eq!(call.id, 0);
        let expected = pattern(call.from + controller.mycontext(), sizes[nth]);
        assert!(call.bytes == expected, "{} bytes", sizes[nth]);
        ring.set(ring.value() + 1);
    })?;
    controller.barrier()?;
    for (round, len) in sizes.into_iter().enumerate() {
        for to in 0..size {
            let mut bytes = pattern(rank + to, len);
            controller.ainvoke(to, receive, &bytes)?;
            bytes.fill(0xff);
        }
        controller.wait(&bell, ((round + 1) * size) as i32)?;
        controller.barrier()?;
    }
    Ok(())
}

/// Sends sequence numbers in short and long payloads, from all contexts to all.
fn fifo(controller: &Controller, args: &[String]) -> Result {
    let times: u64 = args[0].parse().expect("a number");
    let size = controller.ncontexts();
    let (ring, bell) = counter(controller)?;
    let next = RefCell::new(vec![0_u64; size]);
    let receive = controller.register("take", move |_, call| {
        let words: &[u64] = bytemuck::cast_slice(call.bytes);
        let mut next = next.borrow_mut();
        assert_eq!(words[0], next[call.from], "from context {}", call.from);
        next[call.from] += 1;
        ring.set(ring.value() + 1);
    })?;
    controller.barrier()?;
    for number in 0..times {
        let mut words = vec![
            0_u64;
            if number % 101 == 0 {
                2000
            } else {
                1 + number as usize % 9
            }
        ];
        words[0] = number;
        for to in 0..size {
            controller.ainvoke(to, receive, bytemuck::cast_slice(&words))?;
        }
    }
    controller.wait(&bell, (times as usize * size) as i32)?;
    controller.barrier()
}

/// Handlers invoke, register and put; they may not wait.
fn nested(controller: &Controller, _: &[String]) -> Result {
    let size = controller.ncontexts();
    let (ring, bell) = counter(controller)?;
    let unrung = controller.bell()?;
    let respond = controller.register("respond", move |_, _| ring.set(ring.value() + 1))?;
    let request = controller.register("request", move |controller, call| {
        let refused = [
            controller.wait(&unrung, 1),
            controller.barrier(),
            controller.finalize(),
            controller.barrier_begin(),
        ];
        for result in refused {
            assert!(matches!(result, Err(Error::InHandler(_))), "{result:?}");
        }
        assert_eq!(controller.poll().expect("a poll within a handler"), 0);
        controller
            .register("registered late", |_, _| {})
            .expect("a function");
        controller.bell().expect("a bell");
        controller
            .ainvoke(call.from, respond, &[])
            .expect("a response");
    })?;
    controller.barrier()?;
    for to in 0..size {
        controller.ainvoke(to, request, &[])?;
    }
    controller.wait(&bell, size as i32)?;
    controller.barrier()
}

/// Handlers invoke each other, too often for recursion on the stack.
fn chain(controller: &Controller, args: &[String]) -> Result {
    let depth: u64 = args[0].parse().expect("a number");
    let (ring, bell) = counter(controller)?;
    let hop_id = Rc::new(Cell::new(FunctionId(0)));
    let next_hop = Rc::clone(&hop_id);
    let first_stack_address = Cell::new(None);
    let hop = controller.register("hop", move |controller, call| {
        let local = 0_u8;
        let current = std::ptr::from_ref(&local).addr();
        let first = first_stack_address.get().unwrap_or(current);
        first_stack_address.set(Some(first));
        assert!(current.abs_diff(first) < 1 << 16, "the stack grows");
        let remaining: u64 = bytemuck::cast_slice(call.bytes)[0];
        if remaining == 0 {
            return ring.set(1);
        }
        let to = (controller.mycontext() + 1) % controller.ncontexts();
        let result = controller.ainvoke(to, next_hop.get(), bytemuck::bytes_of(&(remaining - 1)));
        result.expect("the next hop");
    })?;
    hop_id.set(hop);
    controller.barrier()?;
    if controller.mycontext() == 0 {
        controller.ainvoke(1 % controller.ncontexts(), hop, bytemuck::bytes_of(&depth))?;
    }
    let last = (1 + depth as usize) % controller.ncontexts();
    if controller.mycontext() == last {
        controller.wait(&bell, 1)?;
    }
    controller.barrier()
}

/// All contexts send to all, and no context polls meanwhile.
fn flood(controller: &Controller, args: &[String]) -> Result {
    let times: usize = args[0].parse().expect("a number");
    let size = controller.ncontexts();
    let (ring, bell) = counter(controller)?;
    let receive = controller.register("take", move |_, call| {
        assert_eq!(call.bytes.len(), 1024);
        ring.set(ring.value() + 1);
    })?;
    controller.barrier()?;
    let bytes = [7_u8; 1024];
    for _ in 0..times {
        for to in 0..size {
            controller.ainvoke(to, receive, &bytes)?;
        }
    }
    controller.wait(&bell, (times * size) as i32)?;
    controller.barrier()
}

/// Context 0 invokes and never polls. The functions that other contexts invoke on it run
/// nevertheless.
fn no_polls(controller: &Controller, _: &[String]) -> Result {
    let (ring, bell) = counter(controller)?;
    let stop_bell = controller.bell()?;
    let stop_ring = stop_bell.clone();
    let ping = controller.register("ping", move |_, _| ring.set(ring.value() + 1))?;
    let stop = controller.register("stop", move |_, _| stop_ring.set(1))?;
    controller.barrier()?;
    if controller.mycontext() == 0 {
        while bell.value() < 100 {
            controller.ainvoke(1, ping, &[])?;
        }
        for to in 1..controller.ncontexts() {
            controller.ainvoke(to, stop, &[])?;
        }
    } else {
        for _ in 0..100 {
            controller.ainvoke(0, ping, &[])?;
        }
        controller.wait(&stop_bell, 1)?;
    }
    controller.barrier()
}

fn typed(controller: &Controller, _: &[String]) -> Result {
    let size = controller.ncontexts();
    let (ring, bell) = counter(controller)?;
    let row = controller.register_typed::<(u32, String, Vec<f64>)>(
        "row",
        move |_, from, (number, name, values)| {
            assert_eq!((*number as usize, name), (from, "row"));
            assert_eq!(values, vec![from as f64; 1000]);
            ring.set(ring.value() + 1);
        },
    )?;
    controller.barrier()?;
    let rank = controller.mycontext();
    let value = (rank as u32, "row".to_owned(), vec![rank as f64; 1000]);
    for to in 0..size {
        controller.ainvoke_typed(to, row, &value)?;
    }
    controller.wait(&bell, size as i32)?;
    controller.barrier()
}

/// A parcel saves one copy. The scenario counts the copies of both sides together.
fn parcels(controller: &Controller, _: &[String]) -> Result {
    const LEN: usize = 10_000;
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let next = (rank + 1) % size;
    let (ring, bell) = counter(controller)?;
    let receive = controller.register("take", move |_, call| {
        assert!(call.bytes == pattern(call.from, LEN));
        ring.set(ring.value() + 1);
    })?;
    controller.barrier()?;
    let mut costs = Vec::new();
    let bytes = pattern(rank, LEN);
    for is_parcel in [false, true] {
        let copies_before = controller.copies();
        controller.barrier()?;
        for _ in 0..10 {
            if is_parcel {
                let mut parcel = controller.reserve(next, LEN)?;
                assert!(parcel.is_special());
                parcel.bytes_mut().copy_from_slice(&bytes);
                controller.commit(receive, parcel)?;
            } else {
                controller.ainvoke(next, receive, &bytes)?;
            }
        }
        controller.wait(&bell, if is_parcel { 20 } else { 10 })?;
        costs.push(controller.copies().all() - copies_before.all());
        controller.barrier()?;
    }
    assert_eq!(costs, [20, 10], "copies of 10 messages");
    // Reservations beyond the limit of special memory succeed. A dropped parcel releases its
    // memory.
    let large_parcels: Vec<_> = (0..5)
        .map(|_| controller.reserve(next, 32 << 20))
        .collect::<Result<_>>()?;
    assert!(large_parcels.iter().any(|parcel| !parcel.is_special()));
    drop(large_parcels);
    let mut parcel = controller.reserve(next, LEN)?;
    parcel.bytes_mut().copy_from_slice(&bytes);
    controller.commit(receive, parcel)?;
    controller.wait(&bell, 21)?;
    controller.barrier()
}

/// The invocation of a function that is not registered is an error of the caller and of the target.
fn unknown(controller: &Controller, _: &[String]) -> Result {
    let (ring, bell) = counter(controller)?;
    let registered = controller.register("registered", move |_, _| ring.set(ring.value() + 1))?;
    // Context 0 may leave the barrier and invoke before context 1 leaves it; context 1 then gets
    // the error from the barrier.
    let mut reported = controller.barrier().err();
    let refused = controller.ainvoke(0, FunctionId(5), &[]);
    assert!(
        matches!(
            refused,
            Err(Error::NoFunction {
                id: 5,
                registered: 1,
                ..
            })
        ),
        "{refused:?}"
    );
    let no_context = controller.ainvoke(controller.ncontexts(), registered, &[]);
    assert!(
        matches!(no_context, Err(Error::NoContext { .. })),
        "{no_context:?}"
    );
    // The caller has registered one function more than the target. Both get the error.
    let rank = controller.mycontext();
    if rank == 0 {
        let extra = controller.register("extra", |_, _| {})?;
        controller.ainvoke(1, extra, &[])?;
    }
    if rank < 2 {
        while reported.is_none() {
            reported = controller.poll().err();
        }
        let expected = Error::NoFunction {
            caller: 0,
            target: 1,
            id: 1,
            registered: 1,
        };
        assert_eq!(reported.take(), Some(expected));
    }
    assert_eq!(reported, None);
    controller.ainvoke((rank + 1) % controller.ncontexts(), registered, &[])?;
    controller.wait(&bell, 1)?;
    controller.barrier()
}

/// The numbers of functions increase from 0, also when one function is registered twice.
fn ordinals(controller: &Controller, _: &[String]) -> Result {
    let (ring, bell) = counter(controller)?;
    let count = move |_: &Controller, call: selvedge_cheetah::Call<'_>| {
        ring.set(ring.value() + 1 + 10 * call.id as i32);
    };
    let ids = [
        controller.register("one", count.clone())?,
        controller.register("one", count.clone())?,
        controller.register("other", count)?,
    ];
    assert_eq!(ids.map(|id| id.0), [0, 1, 2]);
    controller.barrier()?;
    let next = (controller.mycontext() + 1) % controller.ncontexts();
    for id in ids {
        controller.ainvoke(next, id, &[])?;
    }
    controller.wait(&bell, 33)?;
    controller.barrier()
}

/// Functions run only within calls of the library, and bells do not change between calls.
fn handlers_within_calls(controller: &Controller, _: &[String]) -> Result {
    let inside = Rc::new(Cell::new(false));
    let is_inside = Rc::clone(&inside);
    let (ring, bell) = counter(controller)?;
    let receive = controller.register("take", move |_, _| {
        assert!(is_inside.get(), "the function runs outside of a call");
        ring.set(ring.value() + 1);
    })?;
    controller.barrier()?;
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let addresses = crate::exchange::exchange(controller, &[bell.name().word()]);
    let addresses = addresses?;
    inside.set(true);
    controller.barrier()?;
    inside.set(false);
    if rank == 0 {
        // The other contexts send while context 0 only reads its bell.
        let value_before = bell.value();
        std::fs::write(format!("/tmp/cheetah-within-calls-{}", addresses[0][0]), "")
            .expect("a file");
        let until = std::time::Instant::now() + std::time::Duration::from_millis(300);
        while std::time::Instant::now() < until {
            assert_eq!(bell.value(), value_before);
        }
        std::fs::remove_file(format!("/tmp/cheetah-within-calls-{}", addresses[0][0]))
            .expect("a file");
    } else {
        controller.ainvoke(0, receive, &[])?;
    }
    inside.set(true);
    if rank == 0 {
        controller.wait(&bell, size as i32 - 1)?;
    }
    controller.barrier()
}

fn count_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("tasks").count()
}

/// The library creates no threads.
fn threads(controller: &Controller, _: &[String]) -> Result {
    fifo(controller, &["100".to_owned()])?;
    assert_eq!(count_threads(), 1);
    Ok(())
}

/// With a thread in the library, bells ring while the program only reads them.
#[expect(unsafe_code, reason = "a put")]
fn thread_mode(controller: &Controller, _: &[String]) -> Result {
    assert_eq!(count_threads(), 2);
    let next = (controller.mycontext() + 1) % controller.ncontexts();
    let mut buffer = vec![0_u8; 100_000];
    let (remote_bell, local_bell) = (controller.bell()?, controller.bell()?);
    let words = [
        crate::exchange::address(&mut buffer),
        remote_bell.name().word(),
    ];
    let addresses = crate::exchange::exchange(controller, &words)?;
    let source = pattern(1, 100_000);
    let bell = selvedge_cheetah::BellName::from_word(addresses[next][1]);
    let bytes = (source.as_ptr(), source.len());
    // SAFETY: both vectors live until the put is complete in both contexts.
    unsafe { controller.put(next, addresses[next][0], bytes, Some(&local_bell), bell) }?;
    while remote_bell.value() < 1 {
        std::hint::spin_loop();
    }
    while local_bell.value() < 1 {
        std::hint::spin_loop();
    }
    assert!(buffer == source);
    controller.barrier()
}
