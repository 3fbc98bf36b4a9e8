//! Notifications between the members of a group: that the group is broken, and pings.

use std::mem;

use selvedge::Errno;

use super::state::State;
use crate::coll::memory::Scratch;
use crate::coll::tag::{self, Number, Purpose};

/// The contents of a ping. Any other value is the number of the error that has broken the group.
const PING: u64 = 0;

impl State {
    /// Marks a group as broken, fails its running collectives, and notifies the other members.
    pub(super) fn break_group(&mut self, number: Number, errno: Errno, detail: &str) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        if group.broken.is_some() {
            return;
        }
        group.broken = Some((errno, detail.to_owned()));
        group.discard_early(&mut self.channels);
        group.move_to_slow_path();
        self.broken += 1;
        let recipients = group.others().filter_map(|rank| {
            let remote_number = group.numbers[rank]?;
            Some((
                group.members[rank],
                tag::notification(remote_number),
                errno.as_raw() as u64,
            ))
        });
        let recipients: Vec<_> = recipients.collect();
        self.failure_notifications.extend(
            recipients
                .into_iter()
                .map(|(dest, tag, word)| (dest, tag, word, number)),
        );
        let running: Vec<_> = group.running.iter().map(|it| it.sequence).collect();
        for sequence in running {
            self.fail(number, sequence, (errno, detail.to_owned()));
        }
        self.send_failure_notifications();
    }

    /// Sends the pending failure notifications as long as there is room.
    pub(super) fn send_failure_notifications(&mut self) {
        let word = Scratch::new(8);
        while let Some((dest, tag, error, number)) = self.failure_notifications.pop() {
            word.set_word(0, error);
            let context = Purpose::FailureNotification.context(number);
            if self.wire.send_short(dest, tag, word.word_bytes(0), context) == Err(Errno::Again) {
                self.failure_notifications.push((dest, tag, error, number));
                return self.schedule_retry();
            }
        }
    }

    /// Posts the receive for notifications, and pings the members that the group's collectives wait
    /// for. A group with channels sends no pings, because a channel reports its peer's end.
    pub(super) fn check_liveness(&mut self, number: Number) {
        self.post_notification_receive(number);
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        if !group.channels.is_empty() {
            return;
        }
        let mut ranks = Vec::new();
        for running in &mut group.running {
            if mem::replace(&mut running.is_pinged, true) {
                continue;
            }
            if let Some(round) = running.plan.rounds.get(running.round) {
                ranks.extend(round.receives.iter().map(|message| message.peer));
            }
        }
        ranks.sort_unstable();
        ranks.dedup();
        let dest = ranks.into_iter().filter_map(|rank| {
            let remote_number = group.numbers[rank]?;
            Some((group.members[rank], tag::notification(remote_number)))
        });
        let dest: Vec<_> = dest.collect();
        let word = Scratch::new(8);
        word.set_word(0, PING);
        for (member, tag) in dest {
            let context = Purpose::Ping.context(number);
            match self
                .wire
                .send_short(member, tag, word.word_bytes(0), context)
            {
                Ok(()) | Err(Errno::Again) => {}
                Err(errno) => {
                    let detail = format!("{member:?}, which a collective waits for, has failed");
                    return self.break_group(number, errno, &detail);
                }
            }
        }
    }

    fn post_notification_receive(&mut self, number: Number) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        if group.notification_receive.is_posted || group.broken.is_some() {
            return;
        }
        let buffer = group
            .notification_receive
            .buffer
            .get_or_insert_with(|| Scratch::new(8));
        let context = Purpose::NotificationReceive.context(number);
        let posted =
            self.wire
                .receive_any(tag::notification(number), buffer.word_bytes(0), context);
        group.notification_receive.is_posted = posted.is_ok();
    }

    /// Handles the completion of the receive for notifications; `is_received` tells whether a
    /// notification was received.
    pub(super) fn complete_notification_receive(&mut self, number: Number, is_received: bool) {
        let Some(group) = self.groups.get_mut(&number) else {
            return;
        };
        group.notification_receive.is_posted = false;
        let word = group
            .notification_receive
            .buffer
            .as_ref()
            .map_or(PING, |buffer| buffer.word(0));
        match word {
            _ if !is_received => {}
            PING => self.post_notification_receive(number),
            _ => {
                let errno = i32::try_from(word).map_or(Errno::Other, Errno::from_raw);
                let detail = "another member reported that the group is broken";
                self.break_group(number, errno, detail);
            }
        }
        self.remove_if_left(number);
    }

    /// Cancels the receive for notifications when the group has no running collective.
    pub(super) fn cancel_notification_receive(&mut self, number: Number) {
        let group = self.groups.get(&number);
        if group
            .is_some_and(|group| group.notification_receive.is_posted && group.running.is_empty())
        {
            self.wire
                .cancel_all(Purpose::NotificationReceive.context(number));
        }
    }

    /// Whether the group's receive for notifications is posted.
    pub(super) fn has_notification_receive(&self, number: Number) -> bool {
        self.groups
            .get(&number)
            .is_some_and(|group| group.notification_receive.is_posted)
    }

    /// Discards messages for broken groups, because the senders may wait until the messages are
    /// received.
    pub(super) fn discard_for_broken_groups(&mut self) {
        let broken = self.groups.values().filter(|group| group.broken.is_some());
        let broken: Vec<_> = broken.map(|group| group.number).collect();
        broken
            .into_iter()
            .for_each(|number| self.discard_for_group(number));
    }

    pub(super) fn discard_for_group(&mut self, number: Number) {
        let is_broken = self
            .groups
            .get(&number)
            .is_some_and(|group| group.broken.is_some());
        if is_broken {
            self.wire.discard_one(tag::any_data(number), number);
        }
        self.discard_notifications(number);
    }

    /// Discards pings that were received without a posted receive.
    pub(super) fn discard_notifications(&mut self, number: Number) {
        let notifications = selvedge::TagMatch::exact(tag::notification(number));
        self.wire.discard_one(notifications, number);
    }
}
