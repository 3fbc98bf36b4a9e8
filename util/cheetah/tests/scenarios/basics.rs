//! Basic scenarios.

use std::cell::Cell;
use std::rc::Rc;

use selvedge_cheetah::{BellName, Controller, Result};

pub(crate) const SCENARIOS: &[(&str, super::Scenario)] = &[
    ("basic-put", basic_put),
    ("barriers", barriers),
    ("exits", exits),
    ("aborts", aborts),
];

/// Each context sends the address of its buffer and the name of a bell to its predecessor, which
/// puts into the buffer and rings the bell.
#[expect(unsafe_code, reason = "a put")]
fn basic_put(controller: &Controller, _: &[String]) -> Result {
    let (rank, size) = (controller.mycontext(), controller.ncontexts());
    let remote = Rc::new(Cell::new(None));
    let received = Rc::clone(&remote);
    let address_bell = controller.bell()?;
    let ring = address_bell.clone();
    let set_address = controller.register("set_address", move |_, call| {
        let words: &[u64] = bytemuck::cast_slice(call.bytes);
        received.set(Some((call.from, words[0], words[1])));
        ring.set(ring.value() + 1);
    })?;
    controller.barrier()?;
    let mut buffer = vec![0_u64; 1000];
    let remote_bell = controller.bell()?;
    let words = [
        buffer.as_mut_ptr().expose_provenance() as u64,
        remote_bell.name().word(),
    ];
    let previous = (rank + size - 1) % size;
    controller.ainvoke(previous, set_address, bytemuck::cast_slice(&words))?;
    controller.wait(&address_bell, 1)?;
    let (next, remote, bell) = remote.get().expect("an address");
    assert_eq!(next, (rank + 1) % size);
    let values: Vec<u64> = (0..1000).map(|word| word + 10_000 * rank as u64).collect();
    let local_bell = controller.bell()?;
    let bytes = (values.as_ptr().cast(), 8000);
    // SAFETY: both vectors live until this context leaves the barrier. The bell is valid: its
    // context has just sent the name.
    unsafe {
        controller.put(
            next,
            remote,
            bytes,
            Some(&local_bell),
            BellName::from_word(bell),
        )
    }?;
    controller.wait(&local_bell, 1)?;
    controller.wait(&remote_bell, 1)?;
    assert_eq!(buffer[999], 999 + 10_000 * previous as u64);
    controller.barrier()?;
    std::hint::black_box(&mut buffer);
    Ok(())
}

fn barriers(controller: &Controller, _: &[String]) -> Result {
    for _ in 0..1000 {
        controller.barrier()?;
    }
    Ok(())
}

/// The context `args[0]` exits with code `args[1]` after all contexts have finalized.
fn exits(controller: &Controller, args: &[String]) -> Result {
    controller.finalize()?;
    if controller.mycontext().to_string() == args[0] {
        std::process::exit(args[1].parse().expect("a code"));
    }
    Ok(())
}

fn aborts(controller: &Controller, args: &[String]) -> Result {
    if controller.mycontext().to_string() == args[0] {
        std::process::abort();
    }
    controller.barrier()
}
