//! Exchange of addresses and bell names between contexts.

use std::cell::RefCell;
use std::rc::Rc;

use selvedge_cheetah::{Controller, Result};

/// Sends `words` to all contexts. Returns the words of every context, by rank.
pub(crate) fn exchange(controller: &Controller, words: &[u64]) -> Result<Vec<Vec<u64>>> {
    let size = controller.ncontexts();
    let received = Rc::new(RefCell::new(vec![Vec::new(); size]));
    let bell = controller.bell()?;
    let (words_by_context, ring) = (Rc::clone(&received), bell.clone());
    let store_words = controller.register("exchange", move |_, call| {
        words_by_context.borrow_mut()[call.from] = bytemuck::cast_slice(call.bytes).to_vec();
        ring.set(ring.value() + 1);
    })?;
    // No context sends before all have registered.
    controller.barrier()?;
    for to in 0..size {
        controller.ainvoke(to, store_words, bytemuck::cast_slice(words))?;
    }
    controller.wait(&bell, size as i32)?;
    Ok(received.take())
}

/// Returns the remote address of a slice.
pub(crate) fn address<T>(slice: &mut [T]) -> u64 {
    slice.as_mut_ptr().expose_provenance() as u64
}

/// Returns `len` bytes that depend on their index and on `seed`.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let tile: Vec<u8> = (0..4093)
        .map(|index| (index * 31 + index / 251 + seed * 17) as u8)
        .collect();
    let mut bytes = Vec::with_capacity(len + tile.len());
    while bytes.len() < len {
        bytes.extend_from_slice(&tile);
    }
    bytes.truncate(len);
    bytes
}
