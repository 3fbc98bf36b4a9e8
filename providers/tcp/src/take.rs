//! Frames: what each kind of them begins, where its payload goes, and what its end means.

use selvedge::Errno;

use crate::rx::{Arrival, Goal};
use crate::state::State;
use crate::wire::Nonsense;
use crate::wire::frame::Head;

impl State {
    /// Takes a frame: `number` is its own among those that want an answer, if it does. What is to be
    /// done when its payload is there, unless nothing is left to do.
    ///
    /// # Errors
    /// When no peer would send it at this point.
    pub(crate) fn open(
        &mut self,
        at: usize,
        head: Head,
        number: Option<u64>,
    ) -> Result<Option<Arrival>, Nonsense> {
        let lane = &mut self.lanes[at];
        match head {
            Head::Message {
                kind,
                tag,
                data,
                wish,
                len,
            } => {
                let env = self.envelope(at, tag, data, len);
                return Ok(self.message(at, kind, env, number, wish));
            }
            Head::Offer {
                id, tag, data, len, ..
            } => {
                let env = self.envelope(at, tag, data, len);
                self.offered(at, id, env)?;
            }
            Head::Data { id, len, .. } => {
                let coming = lane.coming.remove(&id).filter(|(_, env)| env.len == len);
                let (posted, env) = coming.ok_or(Nonsense("bytes that were not asked for"))?;
                let goal = match posted {
                    Some(posted) => Goal::Receive(posted, env, number),
                    None => Goal::Nothing(number),
                };
                return Ok(Some(Arrival::new(goal, len)));
            }
            Head::Clear { id } => {
                let posting = lane.offers.remove(&id);
                let posting =
                    posting.ok_or(Nonsense("a wish for a message that is not offered"))?;
                self.send_offered(at, id, posting);
            }
            Head::Ack => {
                let report = lane.asks.answer_oldest()?;
                report.done(&self.ep);
            }
            Head::Answer { number, status } => {
                let report = lane.asks.answer(number)?;
                self.answered(at, &report, status);
            }
            Head::ReadRequest { places } => self.serve_read(at, places)?,
            Head::ReadResponse { len, is_checked } => {
                let fetch = lane.reads.pop_front_if(|fetch| fetch.len == len);
                let fetch = fetch.ok_or(Nonsense("bytes that no read asked for"))?;
                return Ok(Some(Arrival::new(Goal::Read(fetch, is_checked), len)));
            }
            Head::ReadEnd { status } => {
                let report = lane.unchecked.take();
                let report = report.ok_or(Nonsense("the end of a read that has not come"))?;
                self.answered(at, &report, status);
            }
            Head::Refused { status } => {
                let fetch = lane.reads.pop_front();
                let fetch = fetch.ok_or(Nonsense("a refusal of what was not asked"))?;
                drop(fetch.buf);
                self.answered(at, &fetch.report, status.max(1));
            }
            Head::Write { places, data, .. } => {
                return self.serve_write(at, places, data, number).map(Some);
            }
            Head::Atomic {
                what,
                data,
                targets,
                len,
            } => return self.serve_atomic(what, data, targets, len).map(Some),
            Head::Outcome { status, len } => {
                let wanted = |has: usize| len == if status == 0 { has } else { 0 };
                let fetch = lane.atomics.pop_front_if(|fetch| wanted(fetch.len));
                let fetch = fetch.ok_or(Nonsense("an outcome of what was not asked"))?;
                return Ok(Some(Arrival::new(Goal::Outcome(fetch, status), len)));
            }
        }
        Ok(None)
    }

    /// Puts a stretch of a payload where it belongs.
    pub(crate) fn place(&mut self, arrival: &mut Arrival, bytes: &[u8]) {
        let at = arrival.at;
        match &mut arrival.goal {
            Goal::Receive(posted, ..) => {
                posted.buf.write(at, bytes);
            }
            Goal::Keep(key) => self.keep_more(*key, bytes),
            Goal::Write(arriving) => arriving.write(&self.keys, at, bytes),
            Goal::Read(fetch, _) | Goal::Outcome(fetch, _) => {
                fetch.buf.write(at, bytes);
            }
            Goal::Change(change) => change.operands.extend_from_slice(bytes),
            Goal::Nothing(_) => {}
        }
    }

    /// A payload is there.
    pub(crate) fn arrived(&mut self, at: usize, arrival: Arrival) {
        match arrival.goal {
            Goal::Receive(posted, env, number) => {
                self.settle(at, number, None);
                let fits = env.len.min(posted.buf.len());
                self.received(posted, &env, fits);
            }
            Goal::Keep(key) => self.kept_whole(at, key),
            Goal::Write(arriving) => self.written(at, &arriving),
            Goal::Read(fetch, is_checked) => {
                drop(fetch.buf);
                match is_checked {
                    true => self.lanes[at].unchecked = Some(fetch.report),
                    false => fetch.report.done(&self.ep),
                }
            }
            Goal::Change(change) => self.change(at, &change),
            Goal::Outcome(fetch, status) => {
                drop(fetch.buf);
                self.answered(at, &fetch.report, status);
            }
            Goal::Nothing(number) => self.settle(at, number, None),
        }
    }

    /// Answers the frame of this number, if it has one.
    pub(crate) fn settle(&mut self, at: usize, number: Option<u64>, refused: Option<Errno>) {
        let Some(number) = number else {
            return;
        };
        let knows = self.lanes[at].terms.knows();
        let head = match knows {
            true => Head::Answer {
                number,
                status: refused.map_or(0, |errno| errno.as_raw().unsigned_abs()),
            },
            false => Head::Ack,
        };
        self.owe(at, &head, &[]);
    }

    /// Queues a frame that a peer is owed.
    pub(crate) fn owe(&mut self, at: usize, head: &Head, payload: &[u8]) {
        let lane = &mut self.lanes[at];
        let order = lane.terms.order;
        lane.tx
            .copy(head, order, |out| out.extend_from_slice(payload));
        self.soil(at);
    }
}
