//! Joining a group: every member sends its number for the group to every other member.
//!
//! Each member waits for a message of each other member directly, so each detects a failed member
//! itself. A member that cannot join still waits for the others' numbers, to notify them.

use selvedge::Errno;
use selvedge::eq::{ErrEntry, Event};

use super::state::State;
use crate::coll::Failure;
use crate::coll::group::Join;
use crate::coll::tag::{Number, Purpose};

impl State {
    /// Posts the remaining messages, and completes a join whose messages are complete.
    pub(in crate::coll) fn continue_join(&mut self, number: Number) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        let Some(join) = &mut group.join else {
            return;
        };
        while let Some(&rank) = join.unposted.last() {
            let context = Purpose::JoinReceive(rank as u16).context(number);
            let member = group.members[rank];
            match self
                .wire
                .receive(member, join.tag, join.words.word_bytes(rank), context)
            {
                Ok(()) => join.outstanding += 1,
                Err(Errno::Again) => return self.schedule_retry(),
                Err(errno) => join.set_failure(errno, format!("receiving from {member:?}")),
            }
            join.unposted.pop();
        }
        while let Some(&rank) = join.unsent.last() {
            let context = Purpose::JoinSend(rank as u16).context(number);
            let (member, number_bytes) = (group.members[rank], join.words.word_bytes(group.rank));
            match self.wire.send(member, join.tag, number_bytes, context) {
                Ok(()) => join.outstanding += 1,
                Err(Errno::Again) => return self.schedule_retry(),
                Err(errno) => {
                    join.set_failure(errno, format!("sending to {member:?}"));
                    self.wire
                        .cancel_all(Purpose::JoinReceive(rank as u16).context(number));
                }
            }
            join.unsent.pop();
        }
        if join.is_done() {
            self.finish_join(number);
        }
        self.write_pending();
    }

    /// Handles the receive of a member's number.
    pub(super) fn complete_number_receive(
        &mut self,
        number: Number,
        rank: usize,
        outcome: Result<usize, Failure>,
    ) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        let Some(join) = &mut group.join else {
            return;
        };
        join.outstanding -= 1;
        match outcome {
            Ok(8) => group.numbers[rank] = Number::try_from(join.words.word(rank)).ok(),
            Ok(len) => join.set_failure(
                Errno::Proto,
                format!("a group number of {len} bytes, not 8"),
            ),
            Err((errno, detail)) => join.set_failure(errno, detail),
        }
        self.continue_join(number);
    }

    /// Handles the send of the number to a member. A member that the send did not reach sends no
    /// number either, so its receive is cancelled.
    pub(super) fn complete_number_send(
        &mut self,
        number: Number,
        rank: usize,
        failure: Option<Failure>,
    ) {
        let group = self.groups.get_mut(&number);
        let Some(join) = group.and_then(|group| group.join.as_mut()) else {
            return;
        };
        join.outstanding -= 1;
        if let Some((errno, detail)) = failure {
            join.set_failure(errno, detail);
            let awaited = Purpose::JoinReceive(rank as u16).context(number);
            self.wire.cancel_all(awaited);
        }
        self.continue_join(number);
    }

    fn finish_join(&mut self, number: Number) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        let Some(Join {
            context, failure, ..
        }) = group.join.take()
        else {
            return;
        };
        let failure = failure.or_else(|| self.open_channels(number).err());
        match failure {
            None => self.events.push(Event::JoinComplete { context }),
            Some((errno, detail)) => {
                let message = format!("cannot join the group: {detail}");
                self.events.push_err(ErrEntry::new(context, errno, message));
                self.break_group(number, errno, &detail);
            }
        }
        self.remove_if_left(number);
    }
}
