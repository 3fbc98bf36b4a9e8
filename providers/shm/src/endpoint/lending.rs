//! Lent messages of an endpoint.

use std::sync::Arc;

use selvedge::{Lending, LentMemory, OpFlags, Result};
use selvedge_kit::copy::TxBuf;

use crate::endpoint::Endpoint;
use crate::endpoint::send::{SendParams, fast_peer, send as send_message};
use crate::endpoint::state::State;
use crate::matching::lent::memory::LentMessage;
use crate::peers::announce::announce;
use crate::transfers::incoming::{SourceSegment, lendable_segment};
use crate::transfers::iov;

impl Lending for Endpoint {
    fn take_lent(&self, number: usize) -> Result<Box<dyn LentMemory>> {
        let core = Arc::downgrade(self.shell.core());
        LentMessage::take(&mut *self.shell.lock()?, core, number)
    }
}

/// Posts a send with [`OpFlags::LEND`]. Bytes that are not one segment of special memory are sent
/// as without the flag.
///
/// # Errors
/// Those of a send.
pub(crate) fn post(state: &mut State, buf: TxBuf, mut params: SendParams) -> Result {
    let Some(segment) = lendable_segment(&buf, &state.setup.shared, &mut state.last_lent) else {
        params.flags -= OpFlags::LEND;
        return send_message(state, buf, &params);
    };
    match send_fast(state, buf, segment, &params) {
        Ok(()) => Ok(()),
        Err(buf) => send_message(state, buf, &params),
    }
}

/// Lends a message to a connected peer that has room for it. Returns the buffer without effect for
/// a message that takes the general path.
fn send_fast(
    state: &mut State,
    buf: TxBuf,
    segment: SourceSegment,
    params: &SendParams,
) -> Result<(), TxBuf> {
    let (setup, peers, schedule) = state.split_for_send();
    if params.flags.contains(OpFlags::FENCE) {
        return Err(buf);
    }
    let Some(peer) = fast_peer(setup, peers, params) else {
        return Err(buf);
    };
    if !iov::has_room_to_lend(peer, &setup.config) || peer.reserve(0).is_err() {
        return Err(buf);
    }
    iov::commit_lent(peer, &params.header, params.report(buf.len()), buf, segment);
    announce(peer, params.flags, schedule, &setup.ep);
    schedule.activate(peer, &setup.ep);
    Ok(())
}
