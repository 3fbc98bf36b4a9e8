//! Exchange of addresses and bell names between contexts.

use std::cell::RefCell;
use std::rc::Rc;

use selvedge_cheetah::{Controller, Result};

/// Sends `words` to all contexts, and returns the words of all.
pub(crate) fn exchange(controller: &Controller, words: &[u64]) -> Result<Vec<Vec<u64>>> {
    let all = controller.ncontexts();
    let received = Rc::new(RefCell::new(vec![Vec::new(); all]));
    let bell = controller.bell()?;
    let (into, ring) = (Rc::clone(&received), bell.clone());
    let set_address = controller.register("exchange", move |_, call| {
        into.borrow_mut()[call.from] = bytemuck::cast_slice(call.bytes).to_vec();
        ring.set(ring.value() + 1);
    })?;
    // No context sends before all have registered.
    controller.barrier()?;
    for to in 0..all {
        controller.ainvoke(to, set_address, bytemuck::cast_slice(words))?;
    }
    controller.wait(&bell, all as i32)?;
    Ok(received.take())
}

/// The remote address of a slice.
pub(crate) fn address<T>(slice: &mut [T]) -> u64 {
    slice.as_mut_ptr().expose_provenance() as u64
}

/// Bytes that depend on their index and on `seed`.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let tile: Vec<u8> = (0..4093)
        .map(|at| (at * 31 + at / 251 + seed * 17) as u8)
        .collect();
    let mut bytes = Vec::with_capacity(len + tile.len());
    while bytes.len() < len {
        bytes.extend_from_slice(&tile);
    }
    bytes.truncate(len);
    bytes
}
