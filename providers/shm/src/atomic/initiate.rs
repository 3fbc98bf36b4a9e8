//! The initiator's side: what is checked first, which way is taken, and what waits for the peer.

use selvedge::atomic::RmaIoc;
use selvedge::{Errno, OpFlags, Result};

use super::{Question, Refused, Request, command, rights, stretch};
use crate::peer::Peer;
use crate::rma::{Later, Notice};
use crate::smr::keys::{Denied, Kind};
use crate::state::State;

impl State {
    /// Carries an atomic out, or sees to it.
    ///
    /// # Errors
    /// Those of a send. What the peer does not allow fails by completion.
    #[inline]
    pub(crate) fn atomic(&mut self, mut request: Request) -> Result {
        if request.report.completes && self.ep.tx_cq.room() == 0 {
            return Err(Errno::Again);
        }
        let index = self.peer_at(request.dest)?;
        let peer = &mut self.peers[index];
        if request.data.is_none()
            && !request.report.flags.contains(OpFlags::FENCE)
            && !peer.is_careful
            && peer.atomics.is_idle()
            && peer.apply_directly(&mut request)
        {
            request.report.done(&self.ep);
            return Ok(());
        }
        self.atomic_patiently(index, request)
    }

    /// Carries out what cannot be carried out at once.
    #[inline(never)]
    fn atomic_patiently(&mut self, index: usize, mut request: Request) -> Result {
        let peer = &self.peers[index];
        if request.report.flags.contains(OpFlags::FENCE) && peer.has_unfinished() {
            return Err(Errno::Again);
        }
        let is_first = peer.later.is_empty();
        if self.is_ready(index) || is_first && self.may_apply_to_sibling(index, &request)? {
            return self.carry_out(index, &mut request);
        }
        self.meet_first(index, request)
    }

    /// Whether an atomic may be carried out here, on the memory of an endpoint of this domain.
    fn may_apply_to_sibling(&mut self, index: usize, request: &Request) -> Result<bool> {
        // Remote data goes with a command, which answers have to keep their order with.
        let is_plain = request.data.is_none() && self.peers[index].atomics.is_idle();
        Ok(is_plain && self.may_access_sibling(index, None, request.report.flags)?)
    }

    /// Carries an atomic out on a sibling's memory, and reports it.
    fn apply_to_sibling(&mut self, index: usize, request: &mut Request) {
        let kernel = request.kernel;
        match self.execute(&kernel, &request.targets, &request.payload) {
            Ok(earlier) => {
                if let Some(mut result) = request.result.take() {
                    result.write(0, earlier.as_slice());
                }
                self.count_atomic(&kernel, &request.targets);
                self.notify_sibling(index, !kernel.has_result(), None, request.report.len);
                request.report.done(&self.ep);
            }
            Err(refused) => {
                let target = request.targets.as_slice()[0];
                self.refuse(index, request, refused, &target);
            }
        }
    }

    /// The peer has not said yet where its memory is.
    #[cold]
    fn meet_first(&mut self, index: usize, mut request: Request) -> Result {
        self.reach(index)?;
        self.hear(index);
        if self.is_ready(index) {
            return self.carry_out(index, &mut request);
        }
        self.keep_for_later(index, Later::Atomic(Box::new(request)))
    }

    /// Checks what is asked for and does it.
    pub(crate) fn carry_out(&mut self, index: usize, request: &mut Request) -> Result {
        if self.may_apply_to_sibling(index, request)? {
            self.apply_to_sibling(index, request);
            return Ok(());
        }
        let is_special = match self.check(index, request) {
            Ok(is_special) => is_special,
            // Its key table may be what there was no descriptor for.
            Err(_) if self.control.waits_for_descriptors(index) => return Err(Errno::Again),
            Err((refused, target)) => {
                self.refuse(index, request, refused, &target);
                return Ok(());
            }
        };
        if is_special && request.data.is_none() && self.peers[index].atomics.is_idle() {
            // The memory itself may be on its way to us.
            self.listen(index);
            if self.apply_and_tell(index, request)? {
                request.report.done(&self.ep);
                return Ok(());
            }
        }
        self.command(index, request)
    }

    /// Carries the request out directly if that is possible, and tells a peer that counts it.
    fn apply_and_tell(&mut self, index: usize, request: &mut Request) -> Result<bool> {
        let peer = &mut self.peers[index];
        match peer.reserve_notice(None) {
            Ok(()) => {}
            Err(Errno::Proto) => {
                self.quarantine(index, "credit for commands that were never sent");
                return Err(Errno::NotConn);
            }
            Err(errno) => return Err(errno),
        }
        let is_done = peer.apply_directly(request);
        if is_done {
            peer.notify(Notice {
                wrote: !request.kernel.has_result(),
                data: None,
                len: request.report.len,
            });
            peer.announce();
        }
        Ok(is_done)
    }

    /// Whether the peer's key table allows it, and all targets are special memory. If it does not,
    /// the peer is heard first: it may have registered the memory, and its word be on its way.
    ///
    /// # Errors
    /// Why not, and of which target.
    fn check(&mut self, index: usize, request: &Request) -> Result<bool, (Refused, RmaIoc)> {
        match check(&mut self.peers[index], request) {
            Ok(is_special) => Ok(is_special),
            Err(_) => {
                self.listen(index);
                check(&mut self.peers[index], request)
            }
        }
    }

    /// Has the peer carry it out.
    #[inline(never)]
    fn command(&mut self, index: usize, request: &mut Request) -> Result {
        let peer = &mut self.peers[index];
        match command::send(peer, request) {
            Ok(()) => {
                peer.announce();
                self.activate(index);
                Ok(())
            }
            Err(Errno::Proto) => {
                self.quarantine(index, "credit for commands that were never sent");
                Err(Errno::NotConn)
            }
            Err(errno) => Err(errno),
        }
    }

    #[cold]
    fn refuse(&mut self, index: usize, request: &mut Request, refused: Refused, target: &RmaIoc) {
        // The buffer goes before the completion comes.
        drop(request.result.take());
        let (name, question) = (
            &self.peers[index].name,
            Question::new(&request.kernel, target),
        );
        let detail = format!("{name}: {question}: {}", refused.text());
        let report = request.report;
        report.failed(&self.ep, refused.errno(), request.dest, detail);
    }
}

fn check(peer: &mut Peer, request: &Request) -> Result<bool, (Refused, RmaIoc)> {
    let mut is_special = true;
    for target in request.targets.as_slice() {
        let refused = |refused| (refused, *target);
        let piece = stretch(&request.kernel, target)
            .ok_or_else(|| refused(Refused::Denied(Denied::Bounds)))?;
        let grant = peer.keys.check(&piece, rights(&request.kernel));
        let grant = grant.map_err(|denied| refused(Refused::Denied(denied)))?;
        let aligned = request.kernel.check(grant.memory);
        aligned.map_err(|unaligned| refused(Refused::Unaligned(unaligned)))?;
        is_special &= grant.row.kind == Kind::Special;
    }
    Ok(is_special)
}
