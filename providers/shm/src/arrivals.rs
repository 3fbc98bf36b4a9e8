//! Arrivals: what becomes of the commands that peers have sent.

use selvedge_kit::cq::Sink;
use selvedge_kit::sight;
use selvedge_kit::srx::Source;

use crate::cmd::{self, Body, Cmd, Nonsense};
use crate::peer::Inbox;
use crate::proto::into::Into;
use crate::proto::{inject, inline, iov, status};
use crate::receive;
use crate::state::{Ack, State, Unexpected};
use crate::usual::{EXPECTED_MAX, Newer, Next, Oldest};

impl State {
    /// Takes up to `budget` commands of a peer that has sent some.
    #[inline(never)]
    pub(crate) fn take_some(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let budget = budget.min(self.ep.rx_cq.room());
        let (mut receiving, peer) = self.receiving(index);
        // Twice: a peer that is far needs all the time, and one that is near has taken the lines
        // back meanwhile.
        peer.expect_answer();
        let taken = receiving.take_plain::<Oldest>(peer, budget, sink);
        peer.publish_credit();
        peer.expect_answer();
        match taken < budget {
            true => taken + self.take_others(index, budget - taken, sink),
            false => taken,
        }
    }

    /// Takes commands of which the first is not as usual, if there is one.
    #[inline(never)]
    fn take_others(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut taken = 0;
        while taken < budget
            && let Some(op) = self.next_op(index)
        {
            let is_message = op <= cmd::OP_LAST_MESSAGE;
            let usual = match is_message {
                true => self.take_usual::<Newer>(index, budget - taken, sink),
                false => self.take_told(index, budget - taken, sink),
            };
            taken += usual;
            if usual > 0 {
                continue;
            }
            self.peers[index].publish_credit();
            let took = match is_message {
                true => self.take(index, sink),
                false => self.take_one_sided(index, op, sink),
            };
            match took {
                Ok(true) => {
                    taken += 1;
                    taken += self.take_usual::<Oldest>(index, budget - taken, sink);
                }
                Ok(false) => break,
                Err(Nonsense(what)) => {
                    self.quarantine(index, what);
                    break;
                }
            }
        }
        self.peers[index].publish_credit();
        taken
    }

    /// What the peer's next command is, if there is one.
    #[inline(always)]
    fn next_op(&self, index: usize) -> Option<u32> {
        let inbox = self.peers[index].inbox.as_ref()?;
        Some(cmd::op(&inbox.rx.peek()?))
    }

    /// Takes commands that are as usual, and have a receive that `R` looks at.
    #[inline(never)]
    fn take_usual<R: Next>(&mut self, index: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let (mut receiving, peer) = self.receiving(index);
        receiving.take_plain::<R>(peer, budget, sink)
    }

    /// Takes one message, if there is one and it has a place.
    #[inline(never)]
    fn take(&mut self, index: usize, sink: &mut Sink<'_>) -> Result<bool, Nonsense> {
        let others = self.peers.len() - 1;
        let peer = &mut self.peers[index];
        let Some(inbox) = &mut peer.inbox else {
            return Ok(false);
        };
        let Some(slot) = inbox.rx.peek() else {
            return Ok(false);
        };
        let cmd = cmd::parse(&slot, Source(index as u32))?;
        let Body::Inline { word } = cmd.body else {
            return self.take_long(index, &cmd, sink);
        };
        let env = &cmd.env;
        match self.inbound.matcher(cmd.kind).arrive(env) {
            Some(mut posted) => {
                let fits = inline::receive(&slot, word, env.len, &mut posted.buf);
                inbox.rx.release();
                let src = peer.fi_addr(&self.av);
                receive::report(peer, &self.ep, src, posted, env, fits, sink);
            }
            None if self.inbound.allowance.has_room(env.len, peer.kept, others) => {
                let bytes = inline::keep(&slot, word, env.len);
                inbox.rx.release();
                self.inbound
                    .keep(cmd.kind, cmd.env, bytes, None, &mut peer.kept);
            }
            None => {
                let len = env.len;
                self.stall(index, len);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A message has to wait with its sender, because too much waits here.
    #[cold]
    fn stall(&mut self, index: usize, len: usize) {
        if self.inbound.stall() {
            let name = self.peers[index].name.as_str();
            self.ep.sight.note(sight::What::Stalled, name, len as u64);
        }
    }

    /// Takes a command that is no message.
    #[inline(never)]
    fn take_one_sided(
        &mut self,
        index: usize,
        op: u32,
        sink: &mut Sink<'_>,
    ) -> Result<bool, Nonsense> {
        match op {
            cmd::OP_ATOMIC..=cmd::OP_COMPARE_ATOMIC => self.take_atomic(index)?,
            cmd::OP_ATOMIC_RESULT => self.take_atomic_result(index)?,
            _ => return self.take_access(index, sink),
        }
        Ok(true)
    }

    /// Takes a command whose message is not inside.
    fn take_long(
        &mut self,
        index: usize,
        cmd: &Cmd,
        sink: &mut Sink<'_>,
    ) -> Result<bool, Nonsense> {
        match cmd.body {
            Body::Inject { offset, ack } => self.take_inject(index, cmd, offset, ack, sink),
            Body::Iov(ref offer) => {
                let peer = &mut self.peers[index];
                iov::accept(peer, offer, cmd.env.len)?;
                release(peer.inbox.as_mut());
                self.activate(index);
                self.match_offer(index, cmd, offer.msg_id);
                Ok(true)
            }
            Body::Inline { .. } => Err(Nonsense("a message that is inside and is not")),
        }
    }

    fn take_inject(
        &mut self,
        index: usize,
        cmd: &Cmd,
        offset: u64,
        ack: Option<u32>,
        sink: &mut Sink<'_>,
    ) -> Result<bool, Nonsense> {
        let others = self.peers.len() - 1;
        let (peer, env) = (&mut self.peers[index], &cmd.env);
        let life = peer.life;
        let Some(inbox) = &mut peer.inbox else {
            return Ok(false);
        };
        let walked = inbox.walk;
        inbox.payload_expected = env.len <= EXPECTED_MAX;
        let at = inject::locate(inbox, offset, env.len)?;
        match self.inbound.matcher(cmd.kind).arrive(env) {
            Some(mut posted) => {
                let fits = inject::receive(inbox, at, env.len, &mut posted.buf);
                inbox.rx.release();
                if let Some(msg_id) = ack {
                    peer.answer(life, msg_id, status::DONE);
                }
                let src = peer.fi_addr(&self.av);
                let way = sight::Way::ReceivedInject;
                self.ep.sight.count_way(way, env.len);
                receive::report(peer, &self.ep, src, posted, env, fits, sink);
            }
            None if self.inbound.allowance.has_room(env.len, peer.kept, others) => {
                let bytes = inject::keep(inbox, at, env.len);
                inbox.rx.release();
                let ack = ack.map(|msg_id| Ack { life, msg_id });
                self.inbound
                    .keep(cmd.kind, cmd.env, bytes, ack, &mut peer.kept);
            }
            None => {
                inbox.walk = walked;
                let len = env.len;
                self.stall(index, len);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn match_offer(&mut self, index: usize, cmd: &Cmd, msg_id: u32) {
        let matcher = self.inbound.matcher(cmd.kind);
        match matcher.arrive(&cmd.env) {
            Some(posted) => {
                let peer = &mut self.peers[index];
                let src = peer.fi_addr(&self.av);
                let (into, len) = (Into::Receive(posted, cmd.env), cmd.env.len);
                iov::start(peer, &self.config, &self.ep, src, msg_id, into, len);
            }
            None => {
                let life = self.peers[index].life;
                matcher.store(cmd.env, Unexpected::Offer { life, msg_id });
            }
        }
    }
}

fn release(inbox: Option<&mut Inbox>) {
    if let Some(inbox) = inbox {
        inbox.rx.release();
    }
}
