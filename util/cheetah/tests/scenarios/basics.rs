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

/// Each context puts to its neighbour, with a bell there, after it was sent the address.
#[expect(unsafe_code, reason = "a put")]
fn basic_put(controller: &Controller, _: &[String]) -> Result {
    let (me, all) = (controller.mycontext(), controller.ncontexts());
    let remote = Rc::new(Cell::new(None));
    let got = Rc::clone(&remote);
    let reported = controller.bell()?;
    let ring = reported.clone();
    let set_address = controller.register("set_address", move |_, call| {
        let words: &[u64] = bytemuck::cast_slice(call.bytes);
        got.set(Some((call.from, words[0], words[1])));
        ring.set(ring.value() + 1);
    })?;
    controller.barrier()?;
    let mut buffer = vec![0_u64; 1000];
    let there = controller.bell()?;
    let words = [
        buffer.as_mut_ptr().expose_provenance() as u64,
        there.name().word(),
    ];
    let before = (me + all - 1) % all;
    controller.ainvoke(before, set_address, bytemuck::cast_slice(&words))?;
    controller.wait(&reported, 1)?;
    let (next, remote, bell) = remote.get().expect("reported");
    assert_eq!(next, (me + 1) % all);
    let values: Vec<u64> = (0..1000).map(|word| word + 10_000 * me as u64).collect();
    let done = controller.bell()?;
    let bytes = (values.as_ptr().cast(), 8000);
    // SAFETY: the vectors live to the end of the barrier; the bell was just received.
    unsafe { controller.put(next, remote, bytes, Some(&done), BellName::from_word(bell)) }?;
    controller.wait(&done, 1)?;
    controller.wait(&there, 1)?;
    assert_eq!(buffer[999], 999 + 10_000 * before as u64);
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
