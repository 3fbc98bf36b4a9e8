//! Puts and gets.

#![expect(unsafe_code, reason = "puts and gets")]

use std::sync::atomic::{AtomicU64, Ordering};

use selvedge_cheetah::{Bell, BellName, Controller, Result};

use crate::exchange::{address, exchange, pattern};

pub(crate) const SCENARIOS: &[(&str, super::Scenario)] = &[
    ("sizes", sizes),
    ("targets", targets),
    ("put-bells", put_bells),
    ("get-bells", get_bells),
    ("many-on-one-bell", many_on_one_bell),
    ("null-bells", null_bells),
    ("polling-target", polling_target),
    ("special", special),
    ("withdrawn", withdrawn),
    ("any-int", any_int),
    ("one-copy", one_copy),
];

const SIZES: [usize; 13] = [
    0,
    1,
    7,
    8,
    32,
    33,
    4047,
    4048,
    4049,
    4096,
    65_536,
    1 << 20,
    64 << 20,
];

/// Puts bytes. They must live until the caller's bell has rung or its barrier has returned.
fn put(
    controller: &Controller,
    to: usize,
    remote: u64,
    bytes: &[u8],
    local: Option<&Bell>,
    bell: u64,
) -> Result {
    let bell = BellName::from_word(bell);
    // SAFETY: the scenarios retain their memory until their bells have rung.
    unsafe { controller.put(to, remote, (bytes.as_ptr(), bytes.len()), local, bell) }
}

fn get(
    controller: &Controller,
    target: usize,
    remote: u64,
    buffer: &mut [u8],
    local: Option<&Bell>,
    bell: u64,
) -> Result {
    let bell = BellName::from_word(bell);
    // SAFETY: as above.
    unsafe {
        controller.get(
            target,
            remote,
            (buffer.as_mut_ptr(), buffer.len()),
            local,
            bell,
        )
    }
}

/// A large put is copied once, from its source to its destination.
fn one_copy(controller: &Controller, _: &[String]) -> Result {
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut buffer = vec![0_u8; 1 << 20];
    let (remote_bell, local_bell) = (controller.bell()?, controller.bell()?);
    let addresses = exchange(
        controller,
        &[address(&mut buffer), remote_bell.name().word()],
    )?;
    // No context puts before all contexts have read their counters.
    let old = controller.copies();
    controller.barrier()?;
    let source = pattern(rank, 1 << 20);
    put(
        controller,
        next,
        addresses[next][0],
        &source,
        Some(&local_bell),
        addresses[next][1],
    )?;
    controller.wait(&local_bell, 1)?;
    controller.wait(&remote_bell, 1)?;
    assert!(buffer == pattern(previous, 1 << 20));
    let new = controller.copies();
    assert_eq!((new.packed, new.placed), (old.packed, old.placed));
    assert_eq!(new.delivered, old.delivered + 1);
    controller.barrier()
}

/// Puts each size to the next context (to itself, if there is only one), at an odd address between
/// guard bytes, and gets it back.
fn sizes(controller: &Controller, _: &[String]) -> Result {
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let largest = SIZES[SIZES.len() - 1];
    let mut buffer = vec![0xee_u8; largest + 16];
    let (remote_bell, local_bell, read_bell) =
        (controller.bell()?, controller.bell()?, controller.bell()?);
    let addresses = exchange(
        controller,
        &[
            address(&mut buffer),
            remote_bell.name().word(),
            read_bell.name().word(),
        ],
    )?;
    for (round, &len) in SIZES.iter().enumerate() {
        let rings = round as i32 + 1;
        let source = pattern(rank + round, len);
        put(
            controller,
            next,
            addresses[next][0] + 3,
            &source,
            Some(&local_bell),
            addresses[next][1],
        )?;
        controller.wait(&local_bell, 2 * rings - 1)?;
        controller.wait(&remote_bell, rings)?;
        assert!(
            buffer[3..3 + len] == pattern(previous + round, len),
            "a put of {len} bytes"
        );
        assert_eq!((&buffer[..3], buffer[3 + len]), (&[0xee; 3][..], 0xee));
        // As in `special`.
        controller.barrier()?;
        let mut back = vec![0_u8; len];
        get(
            controller,
            next,
            addresses[next][0] + 3,
            &mut back,
            Some(&local_bell),
            addresses[next][2],
        )?;
        controller.wait(&local_bell, 2 * rings)?;
        assert!(back == source, "a get of {len} bytes");
        // The previous context has read the bytes, so this context may overwrite them.
        controller.wait(&read_bell, rings)?;
        buffer[3..3 + len].fill(0xee);
        controller.barrier()?;
    }
    Ok(())
}

static DATA: [AtomicU64; 100] = [const { AtomicU64::new(5) }; 100];
static ZEROS: [AtomicU64; 100] = [const { AtomicU64::new(0) }; 100];

/// Puts into the heap, initialized data, zero-initialized data, the stack and mapped memory.
fn targets(controller: &Controller, _: &[String]) -> Result {
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut heap = vec![0_u64; 100];
    let mut large = vec![0_u64; 1 << 20];
    let stack = [const { AtomicU64::new(0) }; 100];
    let fixed = |target: &[AtomicU64]| target.as_ptr().expose_provenance() as u64;
    let targets = [
        address(&mut heap),
        address(&mut large[1000..]),
        fixed(&stack),
        fixed(&DATA),
        fixed(&ZEROS),
    ];
    let bell = controller.bell()?;
    let addresses = exchange(controller, &[&targets[..], &[bell.name().word()]].concat())?;
    let source = vec![rank as u64 + 77; 100];
    for target in &addresses[next][..5] {
        put(
            controller,
            next,
            *target,
            bytemuck::cast_slice(&source),
            None,
            addresses[next][5],
        )?;
    }
    controller.wait(&bell, 5)?;
    let expected = previous as u64 + 77;
    assert!(heap == vec![expected; 100] && large[1000..1100] == vec![expected; 100]);
    for target in [&stack, &DATA, &ZEROS] {
        assert!(
            target
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == expected)
        );
    }
    controller.barrier()
}

/// The initiator overwrites the source once the local bell has rung; the target checks the bytes
/// once the remote bell has rung.
fn put_bells(controller: &Controller, args: &[String]) -> Result {
    let times: i32 = args[0].parse().expect("a number");
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let largest = 20_000;
    let mut buffer = vec![0_u8; largest];
    let (remote_bell, local_bell, consumed_bell) =
        (controller.bell()?, controller.bell()?, controller.bell()?);
    let addresses = exchange(
        controller,
        &[
            address(&mut buffer),
            remote_bell.name().word(),
            consumed_bell.name().word(),
        ],
    )?;
    let len = |round: i32| 1 + (round as usize * 997) % largest;
    let mut source = vec![0_u8; largest];
    for round in 0..times {
        let current_len = len(round);
        source[..current_len].fill((rank as i32 + round) as u8);
        put(
            controller,
            next,
            addresses[next][0],
            &source[..current_len],
            Some(&local_bell),
            addresses[next][1],
        )?;
        controller.wait(&local_bell, round + 1)?;
        source[..current_len].fill(0xff);
        controller.wait(&remote_bell, round + 1)?;
        let expected = (previous as i32 + round) as u8;
        assert!(
            buffer[..current_len].iter().all(|&byte| byte == expected),
            "round {round}"
        );
        put(controller, previous, 0, &[], None, addresses[previous][2])?;
        controller.wait(&consumed_bell, round + 1)?;
    }
    Ok(())
}

/// The target overwrites the bytes once the remote bell has rung; the initiator checks its buffer
/// once the local bell has rung.
fn get_bells(controller: &Controller, args: &[String]) -> Result {
    let times: i32 = args[0].parse().expect("a number");
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let next = (rank + 1) % size;
    let previous = (rank + size - 1) % size;
    let largest = 20_000;
    let mut source = vec![0_u8; largest];
    let (read_bell, local_bell, filled_bell) =
        (controller.bell()?, controller.bell()?, controller.bell()?);
    let addresses = exchange(
        controller,
        &[
            address(&mut source),
            read_bell.name().word(),
            filled_bell.name().word(),
        ],
    )?;
    let len = |round: i32| 1 + (round as usize * 997) % largest;
    for round in 0..times {
        let current_len = len(round);
        source[..current_len].fill((rank as i32 + round) as u8);
        put(controller, previous, 0, &[], None, addresses[previous][2])?;
        controller.wait(&filled_bell, round + 1)?;
        let mut buffer = vec![0xff_u8; current_len];
        get(
            controller,
            next,
            addresses[next][0],
            &mut buffer,
            Some(&local_bell),
            addresses[next][1],
        )?;
        controller.wait(&read_bell, round + 1)?;
        source[..current_len].fill(0xff);
        controller.wait(&local_bell, round + 1)?;
        let expected = (next as i32 + round) as u8;
        assert!(buffer.iter().all(|&byte| byte == expected), "round {round}");
    }
    controller.barrier()
}

/// One bell of each context counts local and remote rings of puts and gets.
fn many_on_one_bell(controller: &Controller, args: &[String]) -> Result {
    let times: usize = args[0].parse().expect("a number");
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let next = (rank + 1) % size;
    let mut buffer = vec![0_u64; 4096];
    let bell = controller.bell()?;
    bell.set(-1000);
    let addresses = exchange(controller, &[address(&mut buffer), bell.name().word()])?;
    let (remote, ring) = (addresses[next][0], addresses[next][1]);
    let source = vec![rank as u64; 4096];
    let mut get_buffer = vec![0_u64; 4096];
    for round in 0..times {
        let words = if round % 97 == 0 { 4096 } else { 1 + round % 8 };
        let bytes = bytemuck::cast_slice(&source[..words]);
        put(controller, next, remote, bytes, Some(&bell), ring)?;
        let back = bytemuck::cast_slice_mut(&mut get_buffer[..words]);
        get(controller, next, remote, back, Some(&bell), ring)?;
    }
    let expected = 4 * times as i32 - 1000;
    controller.wait(&bell, expected)?;
    controller.barrier()?;
    assert_eq!(bell.value(), expected);
    Ok(())
}

fn null_bells(controller: &Controller, _: &[String]) -> Result {
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut buffer = vec![0_u8; 1 << 17];
    let addresses = exchange(controller, &[address(&mut buffer)])?;
    let source = pattern(rank, 1 << 16);
    put(controller, next, addresses[next][0], &source, None, 0)?;
    put(
        controller,
        next,
        addresses[next][0] + (1 << 16),
        &source[..100],
        None,
        0,
    )?;
    let mut back = vec![0_u8; 100];
    get(controller, next, addresses[next][0], &mut back, None, 0)?;
    // Operations without bells are complete when all contexts have finalized.
    controller.finalize()?;
    assert!(buffer[..1 << 16] == pattern(previous, 1 << 16));
    assert!(buffer[1 << 16..][..100] == pattern(previous, 100));
    Ok(())
}

/// Context 0 only polls while the others put into its memory.
fn polling_target(controller: &Controller, _: &[String]) -> Result {
    let size = controller.ncontexts();
    let mut buffer = vec![0_u64; size];
    let (bell, end_bell) = (controller.bell()?, controller.bell()?);
    let ring = end_bell.clone();
    let end = controller.register("end", move |_, _| ring.set(ring.value() + 1))?;
    let addresses = exchange(controller, &[address(&mut buffer), bell.name().word()])?;
    let rank = controller.mycontext();
    if rank == 0 {
        while bell.value() < size as i32 - 1 || end_bell.value() < size as i32 - 1 {
            controller.poll()?;
        }
        let expected: Vec<_> = (0..size as u64).collect();
        assert_eq!(buffer, expected);
    } else {
        let source = [rank as u64];
        let target = addresses[0][0] + 8 * rank as u64;
        put(
            controller,
            0,
            target,
            bytemuck::cast_slice(&source),
            None,
            addresses[0][1],
        )?;
        controller.ainvoke(0, end, &[])?;
        controller.barrier()?;
        return Ok(());
    }
    controller.barrier()
}

/// Puts and gets of several sizes access special memory, also before its context has announced it.
fn special(controller: &Controller, _: &[String]) -> Result {
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let memory = controller.special(1 << 20)?;
    let (remote_bell, local_bell, consumed_bell) =
        (controller.bell()?, controller.bell()?, controller.bell()?);
    let addresses = exchange(
        controller,
        &[
            memory.address(0),
            remote_bell.name().word(),
            consumed_bell.name().word(),
        ],
    )?;
    for round in 0..200_usize {
        let len = match round % 4 {
            0 => 8,
            1 => 100,
            2 => 5000,
            _ => 1 << 19,
        };
        let rings = round as i32 + 1;
        let source = pattern(rank + round, len);
        put(
            controller,
            next,
            addresses[next][0] + 5,
            &source,
            Some(&local_bell),
            addresses[next][1],
        )?;
        controller.wait(&local_bell, 2 * rings - 1)?;
        controller.wait(&remote_bell, rings)?;
        let mut buffer = vec![0_u8; len];
        memory.copy_to(5, &mut buffer)?;
        assert!(
            buffer == pattern(previous + round, len),
            "{len} bytes in round {round}"
        );
        // Puts have no order with gets: the bytes that are read next must have arrived.
        controller.barrier()?;
        let mut back = vec![0_u8; len];
        get(
            controller,
            next,
            addresses[next][0] + 5,
            &mut back,
            Some(&local_bell),
            addresses[next][2],
        )?;
        controller.wait(&local_bell, 2 * rings)?;
        assert!(back == source);
        controller.wait(&consumed_bell, rings)?;
        controller.barrier()?;
    }
    assert!(
        controller.copies().placed > 100,
        "{:?}",
        controller.copies()
    );
    controller.barrier()
}

/// Puts do not write freed special memory, and new special memory may have its address.
fn withdrawn(controller: &Controller, _: &[String]) -> Result {
    let next = (controller.mycontext() + 1) % controller.ncontexts();
    for round in 0..20_u64 {
        let memory = controller.special(8192)?;
        let bell = controller.bell()?;
        let addresses = exchange(controller, &[memory.address(0), bell.name().word()])?;
        for word in 0..4 {
            let source = [round + word];
            put(
                controller,
                next,
                addresses[next][0] + 8 * word,
                bytemuck::cast_slice(&source),
                None,
                addresses[next][1],
            )?;
        }
        controller.wait(&bell, 4)?;
        let mut buffer = [0_u64; 4];
        memory.copy_to(0, bytemuck::cast_slice_mut(&mut buffer))?;
        assert_eq!(buffer, [round, round + 1, round + 2, round + 3]);
        controller.barrier()?;
    }
    Ok(())
}

/// Integers of the program serve as bells: one on the stack, and one in special memory.
fn any_int(controller: &Controller, _: &[String]) -> Result {
    use std::sync::atomic::AtomicI32;
    let next = (controller.mycontext() + 1) % controller.ncontexts();
    let memory = controller.special(4096)?;
    let stack = AtomicI32::new(i32::MAX);
    let on_stack = BellName::at(stack.as_ptr().expose_provenance());
    let in_special = BellName::at(memory.address(64) as usize);
    let mut buffer = [0_u8; 8];
    let addresses = exchange(
        controller,
        &[
            on_stack.word(),
            in_special.word(),
            address(&mut buffer),
            memory.address(0),
        ],
    )?;
    for target in [addresses[next][2], addresses[next][3], addresses[next][3]] {
        for bell in [addresses[next][0], addresses[next][1]] {
            put(controller, next, target, &[1; 8], None, bell)?;
        }
    }
    let mut count = [0_u8; 4];
    while stack.load(Ordering::Acquire) != i32::MIN + 2 || i32::from_ne_bytes(count) != 3 {
        controller.poll()?;
        memory.copy_to(64, &mut count)?;
    }
    controller.barrier()
}
