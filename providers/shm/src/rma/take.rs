//! What peers' one-sided commands do here.

use selvedge::rma::RmaIov;
use selvedge_kit::complaint::complain;
use selvedge_kit::cq::Sink;

use super::cmd::{Answer, Body, Notice, OneSided, Outcome, Small, Write, parse, pool, told};
use super::write::{self, Arrival};
use crate::cmd::Nonsense;
use crate::peer::{OpBody, Peer};
use crate::proto::into::Into;
use crate::proto::{inline, iov};
use crate::smr::keys::Denied;
use crate::state::State;

impl State {
    /// Takes one command of a read or a write. `false` while there is no room for its answer.
    #[inline(never)]
    pub(crate) fn take_access(
        &mut self,
        index: usize,
        sink: &mut Sink<'_>,
    ) -> Result<bool, Nonsense> {
        let Some(inbox) = &mut self.peers[index].inbox else {
            return Ok(false);
        };
        if let Some(slot) = inbox.rx.peek() {
            if let Some(small) = Small::parse(&slot) {
                let result = write::put_inline(&slot, &small, &self.shared);
                inbox.rx.release();
                let (data, len) = (small.data, small.place.len);
                let place = [small.place];
                self.written(index, &place, Arrival { data, len }, result, sink);
                return Ok(true);
            }
            if let Some(notice) = Notice::parse(&slot)? {
                inbox.rx.release();
                self.take_notice(index, notice, sink);
                return Ok(true);
            }
        }
        let walked = inbox.walk;
        let (Some(slot), mut passage) = pool(inbox) else {
            return Ok(false);
        };
        match parse(&slot, &mut passage)? {
            OneSided::Write(write) => self.take_write(index, &write)?,
            OneSided::Read(read) => {
                if !self.answer_read(index, &read) {
                    if let Some(inbox) = &mut self.peers[index].inbox {
                        inbox.walk = walked;
                    }
                    return Ok(false);
                }
                self.release(index);
            }
            OneSided::Result(answer) => self.take_result(index, &answer)?,
        }
        Ok(true)
    }

    /// Takes notices of writes with data, as many as there are one after the other: they need no
    /// place and no answer.
    #[inline(never)]
    pub(crate) fn take_told(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let peer = &mut self.peers[index];
        let src = peer.fi_addr(&self.av);
        let Some(inbox) = &mut peer.inbox else {
            return 0;
        };
        for taken in 0..budget {
            let told = inbox.rx.peek().and_then(|slot| told(&slot));
            let Some((data, len)) = told else {
                return taken;
            };
            inbox.rx.release();
            let data = Some(data);
            Arrival { data, len }.report(&self.ep, src, sink);
        }
        budget
    }

    fn release(&mut self, index: usize) {
        if let Some(inbox) = &mut self.peers[index].inbox {
            inbox.rx.release();
        }
    }

    #[inline]
    fn take_write(&mut self, index: usize, write: &Write) -> Result<(), Nonsense> {
        let peer = &mut self.peers[index];
        let Some(inbox) = &mut peer.inbox else {
            return Ok(());
        };
        let (result, ack) = match write.body {
            Body::Iov {
                msg_id,
                eager,
                pieces,
            } => {
                inbox.rx.release();
                return self.take_offer(index, write, msg_id, eager, pieces);
            }
            Body::Inject { at, ack } => (write::put_injected(inbox, write, at, &self.shared), ack),
        };
        inbox.rx.release();
        if let Some(msg_id) = ack {
            peer.answer(peer.life, msg_id, write::answer(result));
        }
        let arrival = Arrival {
            data: write.data,
            len: write.places.len(),
        };
        let places = write.places.all();
        self.written(index, places, arrival, result, &mut Sink::none());
        Ok(())
    }

    /// Tells of a write that was taken.
    #[inline]
    fn written(
        &mut self,
        index: usize,
        places: &[RmaIov],
        arrival: Arrival,
        result: Result<(), Denied>,
        sink: &mut Sink<'_>,
    ) {
        let peer = &mut self.peers[index];
        match result {
            Ok(()) => {
                self.shared.keys.count_write(places);
                arrival.report(&self.ep, peer.fi_addr(&self.av), sink);
            }
            Err(denied) => refuse(peer.name.as_str(), denied),
        }
    }

    /// Bytes that we have asked for, or the news that they do not come.
    fn take_result(&mut self, index: usize, answer: &Answer) -> Result<(), Nonsense> {
        let peer = &mut self.peers[index];
        if peer.out.is_none() {
            // Whatever it waited for has failed already: the peer is gone.
            self.release(index);
            return Ok(());
        }
        if !is_asked(peer, answer) {
            return Err(Nonsense("an answer to nothing"));
        }
        if let Outcome::Stream { stream, .. } = answer.outcome {
            // While the operation is still where it fails with the peer.
            iov::expect_stream(peer, stream)?;
        }
        let op = peer.outbox().ops.remove(answer.msg_id);
        let (Some(mut op), Some(inbox)) = (op, &mut peer.inbox) else {
            return Ok(());
        };
        if let (Outcome::Inline { len, words }, OpBody::Asked { buf }) =
            (&answer.outcome, &mut op.body)
        {
            inline::receive_words(words, *len, buf);
        }
        inbox.rx.release();
        let src = peer.fi_addr(&self.av);
        match answer.outcome {
            Outcome::Inline { .. } => op.succeed(&self.ep),
            Outcome::Stream { len, stream } => {
                iov::take_stream(peer, stream, Into::Answer(Box::new(op)), len);
                self.activate(index);
                let peer = &mut self.peers[index];
                crate::proto::sar::absorb_kept(peer, &self.ep, src, stream);
            }
            Outcome::Failed(errno) => {
                let detail = format!("{} refuses the access: {errno}", peer.name);
                op.fail(&self.ep, errno, src, detail);
            }
        }
        Ok(())
    }

    /// A peer has used our memory by itself, and says so.
    #[inline]
    fn take_notice(&mut self, index: usize, notice: Notice, sink: &mut Sink<'_>) {
        let src = self.peers[index].fi_addr(&self.av);
        let Notice { wrote, data, len } = notice;
        match wrote {
            true => Arrival { data, len }.report(&self.ep, src, sink),
            false => self.ep.peer_read(len),
        }
    }
}

/// Whether this is what an operation waits for. One that waits for something else stays, to fail
/// with the peer.
fn is_asked(peer: &mut Peer, answer: &Answer) -> bool {
    let op = peer
        .out
        .as_mut()
        .and_then(|out| out.ops.get_mut(answer.msg_id));
    op.is_some_and(|op| match (&op.body, &answer.outcome) {
        (OpBody::Asked { .. }, Outcome::Inline { len, .. } | Outcome::Stream { len, .. }) => {
            *len == op.report.len
        }
        (OpBody::Asked { .. }, Outcome::Failed(_)) => true,
        _ => false,
    })
}

/// A write that the peer's own look at the table should have prevented.
#[cold]
fn refuse(name: &str, denied: Denied) {
    complain(
        "selvedge::shm::ep_data",
        format_args!("{name}: a write was refused: {}", denied.text()),
    );
}
