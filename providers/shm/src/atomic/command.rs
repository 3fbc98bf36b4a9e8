//! Atomic commands: the peer executes an atomic that the initiator cannot execute directly, and
//! responds ([`super::response`]).
//!
//! ```text
//! word 1   datatype, operation, number of targets (one byte each) | elements of the first target << 32
//! word 2   msg_id | bytes of the payload << 32
//! word 3   key of the first target, 4: address of the first target
//! inline   with data: 5 the data, the payload from word 6 on; without: the payload from word 5 on
//! inject   word 5: offset of the payload, 6: the data
//! payload  if there are several targets: address, number of elements and key of each; the
//!          operands; the compare values
//! ```
//!
//! Words 1, 3 and 4 describe the whole request if it has only one target.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use selvedge::atomic::{Datatype, Family, Op as Operation, RmaIoc};
use selvedge::cq::Entry;
use selvedge::{CompletionFlags, Errno, Result};
use selvedge_kit::atomic::{Kernel, query};

use super::{AtomicError, OutstandingAtomic, Payload, Request, Targets, response, target_segment};
use crate::peers::ops::{Op, OpBody};
use crate::peers::outbox::Inbox;
use crate::peers::peer::Peer;
use crate::progress::schedule::Schedule;
use crate::provider::setup::Setup;
use crate::smr::cmd_queue::{Received, SLOT_WORDS};
use crate::smr::keys::Denied;
use crate::transfers::cmd::{self, HAS_DATA, IOV_LIMIT, ProtocolError};
use crate::transfers::{MAX_OPS, inject, inline};

/// The word at which an inline payload begins.
const PAYLOAD_WORD: usize = 5;
/// The longest inline payload, in bytes.
const INLINE_MAX: usize = (SLOT_WORDS - PAYLOAD_WORD) * 8;
/// Bytes of one target in the list of targets.
const ENTRY_LEN: usize = 24;

/// Sends the command of a request. The response carries the fetched values.
///
/// # Errors
/// [`Errno::Again`] while there is no room; [`Errno::Proto`] when the peer claims to have consumed
/// commands that were never sent.
#[expect(
    clippy::indexing_slicing,
    reason = "a local request has at least one target"
)]
pub(super) fn send(peer: &mut Peer, request: &mut Request) -> Result {
    if peer.outstanding() >= MAX_OPS {
        return Err(Errno::Again);
    }
    let targets = request.targets.as_slice();
    let list = if targets.len() > 1 { targets } else { &[] };
    let payload = request.payload.as_slice();
    let len = list.len() * ENTRY_LEN + payload.len();
    let room = INLINE_MAX - if request.data.is_some() { 8 } else { 0 };
    let is_inline = len <= room && list.is_empty();
    let offset = peer.reserve(if is_inline { 0 } else { len })?;
    if !is_inline {
        let bytes = peer.outbox().payload();
        for (index, target) in list.iter().enumerate() {
            let words = [target.addr, target.count as u64, target.key];
            let entry = words.map(u64::to_ne_bytes);
            bytes.copy_in(offset + index * ENTRY_LEN, entry.as_flattened());
        }
        bytes.copy_in(offset + list.len() * ENTRY_LEN, payload);
    }
    let mut outstanding_op = OutstandingAtomic::new(&request.kernel, &targets[0]);
    outstanding_op.result = request.result.take();
    let msg_id = peer.outbox().ops.insert(Op {
        report: request.report,
        body: OpBody::Atomic(outstanding_op),
    });
    peer.atomics.outstanding += 1;
    let mut slot = peer.slot();
    let (datatype, op) = (request.kernel.datatype() as u64, request.kernel.op() as u64);
    let first_target = &targets[0];
    slot.put(
        1,
        datatype | op << 8 | (targets.len() as u64) << 16 | (first_target.count as u64) << 32,
    );
    slot.put(2, u64::from(msg_id) | (len as u64) << 32);
    slot.put(3, first_target.key);
    slot.put(4, first_target.addr);
    let flags = if request.data.is_some() { HAS_DATA } else { 0 };
    let op = cmd::OP_ATOMIC + request.kernel.family() as u32;
    if is_inline {
        let mut word = PAYLOAD_WORD;
        if let Some(data) = request.data {
            slot.put(word, data);
            word += 1;
        }
        for chunk in payload.chunks(8) {
            slot.put(word, inline::to_word(chunk));
            word += 1;
        }
        slot.commit(cmd::head(op, cmd::SRC_INLINE, flags, len as u32));
    } else {
        slot.put(PAYLOAD_WORD, offset as u64);
        slot.put(PAYLOAD_WORD + 1, request.data.unwrap_or(0));
        slot.commit(cmd::head(op, cmd::SRC_INJECT, flags, 0));
    }
    Ok(())
}

/// A parsed atomic command of a peer, before its targets are checked against registered memory.
struct Command {
    kernel: Kernel,
    targets: Targets,
    payload: Payload,
    data: Option<u64>,
    msg_id: u32,
}

/// Executes the atomic command that is the peer's next command.
///
/// # Errors
/// [`ProtocolError`] when the command is invalid.
#[cold]
pub(crate) fn take_command(
    peer: &mut Peer,
    setup: &Setup,
    schedule: &mut Schedule,
) -> Result<(), ProtocolError> {
    let Some(inbox) = &mut peer.inbox else {
        return Ok(());
    };
    let command = Command::take(inbox)?;
    let Command {
        kernel,
        targets,
        payload,
        ..
    } = &command;
    let outcome = execute(setup, kernel, targets, payload);
    let fetched = outcome.as_ref().map(Payload::as_slice);
    let result = fetched.map_err(|error| error.errno());
    // The response precedes the local report, because the application may exit as soon as it reads
    // the report.
    let responded = response::respond(peer, command.msg_id, result);
    if outcome.is_ok() {
        report_remote_atomic(peer, setup, &command);
    }
    responded?;
    if !peer.atomics.is_empty() {
        schedule.activate(peer, &setup.ep);
    }
    Ok(())
}

/// Applies an atomic to registered memory of this process, if the regions grant the rights. Returns
/// the fetched values, which are empty for an atomic that fetches none.
pub(super) fn execute(
    setup: &Setup,
    kernel: &Kernel,
    targets: &Targets,
    payload: &Payload,
) -> Result<Payload, AtomicError> {
    let regions = setup.shared.keys.regions();
    let mut memory = Vec::with_capacity(targets.as_slice().len());
    for target in targets.as_slice() {
        let requested =
            target_segment(kernel, target).ok_or(AtomicError::Denied(Denied::Bounds))?;
        let segment = regions.locate(&requested, kernel.access());
        let segment = segment.map_err(AtomicError::Denied)?;
        let address = segment.as_ptr().addr() as u64;
        kernel.check(address).map_err(AtomicError::Unaligned)?;
        memory.push(segment);
    }
    let len = memory.iter().map(|segment| segment.len()).sum();
    // A payload of at most half of the inject pool always finds room in the pool.
    if kernel.has_result() && len > setup.config.region.inject_size / 2 {
        return Err(AtomicError::TooLong);
    }
    let mut fetched = Payload::zeroed(0, if kernel.has_result() { len } else { 0 });
    let mut position = 0;
    for segment in memory {
        let args = payload.args(position, &mut fetched);
        kernel
            .apply(segment, args)
            .map_err(AtomicError::Unaligned)?;
        position += segment.len();
    }
    Ok(fetched)
}

/// Adds an executed atomic to the counters of the regions that it accessed.
pub(super) fn count_access(setup: &Setup, kernel: &Kernel, targets: &Targets) {
    let segments = targets.as_slice().iter();
    let segments = segments.map(|target| (target.key, target.count * kernel.size()));
    setup.shared.keys.count(segments, kernel.access());
}

/// Counts a peer's executed atomic, and reports the atomic if it carries remote data.
fn report_remote_atomic(peer: &mut Peer, setup: &Setup, command: &Command) {
    let (ep, kernel) = (&setup.ep, &command.kernel);
    let elements = command.targets.as_slice().iter().map(|target| target.count);
    let len = elements.sum::<usize>() * kernel.size();
    let direction = if kernel.has_result() {
        CompletionFlags::REMOTE_READ
    } else {
        CompletionFlags::REMOTE_WRITE
    };
    if kernel.has_result() {
        ep.peer_read(len)
    } else {
        ep.peer_wrote(len)
    }
    count_access(setup, kernel, &command.targets);
    if let Some(data) = command.data {
        let entry = Entry {
            flags: CompletionFlags::ATOMIC | direction | CompletionFlags::REMOTE_CQ_DATA,
            len,
            data,
            ..Entry::default()
        };
        ep.rx_cq.push(entry, peer.fi_addr(&setup.av));
    }
}

impl Command {
    /// Parses the next command, which is an atomic, and releases its slot.
    fn take(inbox: &mut Inbox) -> Result<Self, ProtocolError> {
        let slot = inbox.peeked()?;
        let (kernel, targets, first_target) = Self::parse(&slot)?;
        let flags = slot.head() >> 16 & 0xff;
        if flags & !HAS_DATA != 0 {
            return Err(ProtocolError("unknown flags of an atomic"));
        }
        let has_data = flags & HAS_DATA != 0;
        let word = slot.word(2);
        let (msg_id, len) = (word as u32, (word >> 32) as usize);
        let (bytes, data) = match slot.head() >> 8 & 0xff {
            cmd::SRC_INLINE => {
                let first = PAYLOAD_WORD + usize::from(has_data);
                if targets > 1 || len > (SLOT_WORDS - first) * 8 {
                    return Err(ProtocolError("inline length beyond the command"));
                }
                (
                    inline::copy_to_heap(&slot, first, len),
                    slot.word(PAYLOAD_WORD),
                )
            }
            cmd::SRC_INJECT => {
                let (offset, data) = (slot.word(PAYLOAD_WORD), slot.word(PAYLOAD_WORD + 1));
                let start = inject::locate(inbox, offset, len)?;
                (inject::copy_to_heap(inbox, start, len), data)
            }
            _ => return Err(ProtocolError("unknown op_src of an atomic")),
        };
        let command = Self::assemble(kernel, targets, first_target, &bytes)?;
        inbox.rx.release();
        Ok(Self {
            msg_id,
            data: has_data.then_some(data),
            ..command
        })
    }

    /// Parses the operation, the number of targets, and the first target. The first target is valid
    /// if the command has only one.
    fn parse(slot: &Received<'_>) -> Result<(Kernel, usize, RmaIoc), ProtocolError> {
        let word = slot.word(1);
        let family = match cmd::op(slot) {
            cmd::OP_ATOMIC => Family::Base,
            cmd::OP_FETCH_ATOMIC => Family::Fetch,
            _ => Family::Compare,
        };
        let (datatype, op) = (word as u8, (word >> 8) as u8);
        let kernel = Datatype::from_raw(datatype.into())
            .zip(Operation::from_raw(op.into()))
            .and_then(|(datatype, op)| query(family, datatype, op).ok());
        let kernel = kernel.ok_or(ProtocolError("unknown datatype or operation of an atomic"))?;
        let targets = usize::from((word >> 16) as u8);
        if !(1..=IOV_LIMIT).contains(&targets) {
            return Err(ProtocolError("number of targets out of range"));
        }
        let first_target = RmaIoc {
            addr: slot.word(4),
            count: (word >> 32) as usize,
            key: slot.word(3),
        };
        Ok((kernel, targets, first_target))
    }

    /// Builds the command from targets and operands, and checks that their lengths agree.
    fn assemble(
        kernel: Kernel,
        targets: usize,
        first_target: RmaIoc,
        bytes: &[u8],
    ) -> Result<Self, ProtocolError> {
        let list = if targets > 1 { targets * ENTRY_LEN } else { 0 };
        let (list, values) = bytes
            .split_at_checked(list)
            .ok_or(ProtocolError("list of targets beyond the payload"))?;
        let targets = match targets {
            1 => Targets::One(first_target),
            _ => Targets::Many(list.as_chunks().0.iter().map(parse_target).collect()),
        };
        let counts = targets.as_slice().iter().map(|target| target.count);
        let count = counts.fold(0_usize, usize::saturating_add);
        let len = count.checked_mul(kernel.size());
        let len = len.filter(|&len| len > 0 && len <= isize::MAX as usize);
        let len = len.ok_or(ProtocolError("number of elements out of range"))?;
        let operand = if kernel.has_operand() { len } else { 0 };
        let compare = if kernel.has_compare() { len } else { 0 };
        if values.len() != operand + compare {
            return Err(ProtocolError(
                "length of the operands differs from that of the targets",
            ));
        }
        let mut payload = Payload::zeroed(operand, values.len());
        payload.as_mut_slice().copy_from_slice(values);
        Ok(Self {
            kernel,
            targets,
            payload,
            data: None,
            msg_id: 0,
        })
    }
}

/// Parses one target of a list.
fn parse_target(bytes: &[u8; ENTRY_LEN]) -> RmaIoc {
    let words = bytes.as_chunks().0;
    let word = |index| words.get(index).map_or(0, |word| u64::from_ne_bytes(*word));
    RmaIoc {
        addr: word(0),
        count: usize::try_from(word(1)).unwrap_or(usize::MAX),
        key: word(2),
    }
}
