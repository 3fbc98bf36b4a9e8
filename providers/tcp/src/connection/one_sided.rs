//! Our registered memory, as peers use it: writes, reads and atomics at the target.
//!
//! Key, rights and bounds are looked up before anything moves, and anew for each step of a large
//! transfer. What is not allowed is answered with the reason, where the peer knows such answers; to
//! others the only answer is the end of the connection.

use selvedge::atomic::{Datatype, Family, Op, RmaIoc};
use selvedge::cq::Entry;
use selvedge::rma::RmaIov;
use selvedge::{CompletionFlags, Context, Errno, FiAddr, MrAccess};
use selvedge_kit::Ep;
use selvedge_kit::atomic::{Args, Kernel, query};
use selvedge_kit::mr::{Keys, Regions};
use selvedge_kit::segments::RmaSegments;

use crate::config::LARGEST_INJECT;
use crate::connection::outgoing::Outgoing;
use crate::socket::vecs::Room;
use crate::wire::Nonsense;
use crate::wire::frame::Head;

/// Responses up to this size are copied when they are asked for.
const COPY_MAX: usize = 16 << 10;

/// A write that is coming.
#[derive(Debug)]
pub(crate) struct Arriving {
    places: RmaSegments,
    data: Option<u64>,
    number: Option<u64>,
    /// Why it may not, or not any more: what comes then goes nowhere.
    pub(crate) denied: Option<Errno>,
}

/// An atomic whose operands are coming.
#[derive(Debug)]
pub(crate) struct Change {
    kernel: Kernel,
    targets: Vec<RmaIoc>,
    data: Option<u64>,
    pub(crate) operands: Vec<u8>,
}

impl Arriving {
    /// Adds the memory of the bytes from `at` on, as far as it may be written.
    pub(crate) fn offer<'a>(
        &mut self,
        room: &mut Room<'a>,
        regions: &'a Regions<'_>,
        at: usize,
        len: usize,
    ) {
        for place in self.places.clip(at, len) {
            match regions.locate(&place, MrAccess::REMOTE_WRITE) {
                Ok(part) => room.push_shared(part, regions),
                Err(denied) => {
                    self.denied = Some(denied.errno());
                    return;
                }
            };
        }
    }

    /// Writes bytes to their place.
    pub(crate) fn write(&mut self, keys: &Keys, at: usize, bytes: &[u8]) {
        if self.denied.is_some() {
            return;
        }
        let regions = keys.regions();
        let mut rest = bytes;
        for place in self.places.clip(at, bytes.len()) {
            let (these, others) = rest.split_at(place.len);
            rest = others;
            match regions.locate(&place, MrAccess::REMOTE_WRITE) {
                Ok(part) => part.write(these),
                Err(denied) => {
                    self.denied = Some(denied.errno());
                    return;
                }
            }
        }
    }
}

/// Whether all places may be used so.
fn allowed(regions: &Regions<'_>, places: &RmaSegments, rights: MrAccess) -> Result<(), Errno> {
    let mut all = places.all().iter();
    all.try_for_each(|place| match regions.locate(place, rights) {
        Ok(_) => Ok(()),
        Err(denied) => Err(denied.errno()),
    })
}

/// What a peer that knows no refusals is told.
fn refusal(errno: Errno) -> Nonsense {
    Nonsense(match errno {
        Errno::KeyRejected => "an access with a key that nobody has",
        Errno::Acces => "an access without the right to it",
        _ => "an access beyond its region",
    })
}

/// A write that a peer begins.
///
/// # Errors
/// When the peer may not write there and, as it does not know refusals, cannot be told.
pub(crate) fn arriving(
    keys: &Keys,
    places: RmaSegments,
    data: Option<u64>,
    number: Option<u64>,
    knows: bool,
) -> Result<Arriving, Nonsense> {
    let denied = allowed(&keys.regions(), &places, MrAccess::REMOTE_WRITE).err();
    if let Some(errno) = denied.filter(|_| !knows) {
        return Err(refusal(errno));
    }
    Ok(Arriving {
        places,
        data,
        number,
        denied,
    })
}

/// The registered memory of an endpoint, as one peer uses it.
pub(crate) struct OneSided<'a> {
    pub(crate) ep: &'a Ep,
    pub(crate) keys: &'a Keys,
    /// The peer's index in the address vector.
    pub(crate) src: FiAddr,
    /// The connection with the peer, for answers.
    pub(crate) outgoing: &'a mut Outgoing,
}

impl OneSided<'_> {
    /// A write is there.
    ///
    /// # Errors
    /// When the peer was not allowed to write, and cannot be told.
    pub(crate) fn written(&mut self, arriving: &Arriving) -> Result<(), Nonsense> {
        if let (Some(errno), false) = (arriving.denied, self.outgoing.terms.knows()) {
            return Err(refusal(errno));
        }
        self.outgoing.acknowledge(arriving.number, arriving.denied);
        if arriving.denied.is_none() {
            let len = arriving.places.len();
            self.ep.peer_wrote(len);
            let places = arriving.places.all().iter();
            let places = places.map(|place| (place.key, place.len));
            self.keys.count(places, MrAccess::REMOTE_WRITE);
            let what = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE;
            self.report(arriving.data, what, len);
        }
        Ok(())
    }

    /// Tells the application of a peer's access that came with data.
    fn report(&self, data: Option<u64>, what: CompletionFlags, len: usize) {
        let Some(data) = data else {
            return;
        };
        let entry = Entry {
            context: Context::default(),
            flags: what | CompletionFlags::REMOTE_CQ_DATA,
            len,
            data,
            ..Entry::default()
        };
        self.ep.rx_cq.push(entry, self.src);
    }

    /// A peer reads.
    ///
    /// # Errors
    /// When the peer may not read there, and cannot be told.
    pub(crate) fn read(&mut self, places: RmaSegments) -> Result<(), Nonsense> {
        let regions = self.keys.regions();
        let terms = self.outgoing.terms;
        if let Err(errno) = allowed(&regions, &places, MrAccess::REMOTE_READ) {
            if !terms.knows() {
                return Err(refusal(errno));
            }
            let status = errno.as_raw().unsigned_abs();
            self.outgoing.owe(&Head::Refused { status }, &[]);
            return Ok(());
        }
        let len = places.len();
        let read: Vec<_> = places.all().iter().map(|it| (it.key, it.len)).collect();
        if len > COPY_MAX {
            self.outgoing.tx.expose(terms.order, places, terms.knows());
        } else {
            let head = Head::ReadResponse {
                len,
                is_checked: false,
            };
            self.outgoing.tx.copy(&head, terms.order, |out| {
                for place in places.clip(0, len) {
                    let start = out.len();
                    out.resize(start + place.len, 0);
                    if let Ok(part) = regions.locate(&place, MrAccess::REMOTE_READ) {
                        part.read_into(&mut out[start..]);
                    }
                }
            });
        }
        self.outgoing.note_owing();
        self.ep.peer_read(len);
        drop(regions);
        self.keys.count(read.into_iter(), MrAccess::REMOTE_READ);
        Ok(())
    }

    /// The operands of an atomic are there.
    pub(crate) fn change(&mut self, change: &Change) {
        let outcome = change.carry_out(self.keys);
        let (status, values) = match &outcome {
            Ok(values) => (0, &values[..]),
            Err(errno) => (errno.as_raw().unsigned_abs(), &[][..]),
        };
        let len = values.len();
        self.outgoing.owe(&Head::Outcome { status, len }, values);
        if outcome.is_ok() {
            let len = change.len();
            let is_read = change.kernel.has_result();
            let direction = match is_read {
                true => CompletionFlags::REMOTE_READ,
                false => CompletionFlags::REMOTE_WRITE,
            };
            match is_read {
                true => self.ep.peer_read(len),
                false => self.ep.peer_wrote(len),
            }
            let size = change.kernel.size();
            let targets = change.targets.iter();
            let targets = targets.map(|target| (target.key, target.count * size));
            self.keys.count(targets, change.kernel.access());
            self.report(change.data, CompletionFlags::ATOMIC | direction, len);
        }
    }
}

impl Change {
    /// An atomic that a peer asks for, whose operands have `len` bytes.
    ///
    /// # Errors
    /// When there is no such operation, or its operands have another length.
    pub(crate) fn new(
        what: u64,
        data: Option<u64>,
        targets: Vec<RmaIoc>,
        len: usize,
    ) -> Result<Self, Nonsense> {
        let kernel = kernel(what).ok_or(Nonsense("an atomic that does not exist"))?;
        let count = targets.iter().map(|target| target.count);
        let count = count.fold(0_usize, usize::saturating_add);
        let of_each = count.saturating_mul(kernel.size());
        let kinds = usize::from(kernel.has_operand()) + usize::from(kernel.has_compare());
        if of_each.saturating_mul(kinds) != len || of_each > LARGEST_INJECT {
            return Err(Nonsense(
                "an atomic with other operands than it has targets",
            ));
        }
        Ok(Self {
            kernel,
            targets,
            data,
            operands: Vec::with_capacity(len),
        })
    }

    fn len(&self) -> usize {
        let count: usize = self.targets.iter().map(|target| target.count).sum();
        count * self.kernel.size()
    }

    /// Changes the targets, all or none; the earlier values, if they are wanted.
    fn carry_out(&self, keys: &Keys) -> Result<Vec<u8>, Errno> {
        let regions = keys.regions();
        let size = self.kernel.size();
        let mut parts = Vec::with_capacity(self.targets.len());
        for target in &self.targets {
            let place = RmaIov {
                addr: target.addr,
                len: target.count * size,
                key: target.key,
            };
            let part = regions.locate(&place, self.kernel.access());
            let part = part.map_err(|denied| denied.errno())?;
            let first = part.as_ptr().addr() as u64;
            self.kernel.check(first).map_err(|_| Errno::Inval)?;
            parts.push(part);
        }
        let (operand, compare) = match self.kernel.has_operand() {
            true => self.operands.split_at(self.len()),
            false => (&[][..], &self.operands[..]),
        };
        let wanted = if self.kernel.has_result() {
            self.len()
        } else {
            0
        };
        let mut result = vec![0; wanted];
        let mut done = 0;
        for part in parts {
            let range = done..done + part.len();
            done = range.end;
            let args = Args {
                operand: operand.get(range.clone()).unwrap_or_default(),
                compare: compare.get(range.clone()).unwrap_or_default(),
                result: result.get_mut(range).unwrap_or_default(),
            };
            self.kernel.apply(part, args).map_err(|_| Errno::Inval)?;
        }
        Ok(result)
    }
}

/// An operation as a word.
pub(crate) fn word_of(kernel: &Kernel) -> u64 {
    let family = match kernel.family() {
        Family::Base => 0,
        Family::Fetch => 1,
        Family::Compare => 2,
    };
    family << 32 | (kernel.datatype() as u64) << 16 | kernel.op() as u64
}

/// The operation that a word names, if there is one.
fn kernel(word: u64) -> Option<Kernel> {
    let family = match word >> 32 {
        0 => Family::Base,
        1 => Family::Fetch,
        2 => Family::Compare,
        _ => return None,
    };
    let datatype = Datatype::from_raw((word >> 16 & 0xffff) as u32)?;
    let op = Op::from_raw((word & 0xffff) as u32)?;
    query(family, datatype, op).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_words_and_no_other_word_is_one() {
        let kernel_of = |family| query(family, Datatype::Uint64, Op::Sum).unwrap();
        for family in [Family::Base, Family::Fetch] {
            let word = word_of(&kernel_of(family));
            let back = kernel(word).unwrap();
            assert_eq!((back.family(), back.op()), (family, Op::Sum));
        }
        for word in [u64::MAX, 3 << 32, 0xffff, 0xffff_0000] {
            assert!(kernel(word).is_none(), "{word:#x}");
        }
    }
}
