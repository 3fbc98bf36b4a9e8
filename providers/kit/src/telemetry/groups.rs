//! The pending collectives of an endpoint, their groups, and the members that they wait for.
//!
//! The collective layer writes this page under its own lock when a collective takes long. The layer
//! always writes the number of collectives that each group has begun.

use std::sync::atomic::Ordering;

use selvedge::Error;
use selvedge::collective::Op;

use super::layout::{
    AT_GROUP_PENDING, AT_GROUP_SEQ, AT_GROUPS, AWAITED_MEMBER_WORDS, GROUP_PENDING_HEADER,
    GROUP_PENDING_WORDS, GROUP_WORDS, GROUPS, GROUPS_WORDS, MAX_AWAITED, MAX_PENDING, PageKind,
};
use super::page_copy::{PageHeader, copy_consistent, read_text};
use super::seqlock::{self, Words};
use super::shared_words::{SharedWords, now, write_text};

/// Stands for a join in the word that otherwise holds the operation of a collective ([`Op`]).
const JOIN: u64 = 0xff;
const INEXACT: u64 = 1;
const AWAITS_ROOM: u64 = 2;

/// Writes the groups page of one endpoint.
#[derive(Debug)]
pub struct GroupRecorder {
    page: SharedWords<GROUPS_WORDS>,
    /// Whether the page has pending collectives at present.
    pub(crate) has_pending: bool,
}

/// A collective, or a join, that has not completed for a while.
#[derive(Clone, Debug)]
pub struct PendingCollective {
    /// The collective; `None` for a join.
    pub coll: Option<Op>,
    /// The endpoint's own number for the group.
    pub group: u16,
    /// The sequence number of the collective in its group, from 0 on.
    pub sequence: u32,
    /// The time at which the wait was noticed, in nanoseconds of the system's monotonic clock.
    pub since: u64,
    /// The rank of the endpoint.
    pub rank: u32,
    /// The number of members of the group.
    pub members: u32,
    /// The number of awaited messages or members.
    pub count: u32,
    /// Whether all members in `awaited` are awaited; otherwise some of them are.
    pub is_exact: bool,
    /// Whether the collective waits for send room to these members rather than for their messages.
    pub awaits_room: bool,
    /// The awaited members, as many as the page has room for.
    pub awaited: Vec<AwaitedMember>,
}

/// A member that a collective waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedMember {
    /// The member's rank in the group.
    pub rank: u32,
    /// The member's number for the group, if this endpoint has received the number.
    pub number: Option<u16>,
    /// The member's name.
    pub name: String,
}

impl GroupRecorder {
    /// Opens a page for the endpoint of a provider that has this name.
    ///
    /// # Errors
    /// As [`super::StatsPage::open`].
    pub fn open(provider: &str, name: &str) -> Result<Self, Error> {
        let page = SharedWords::open(PageKind::Groups, provider, now())?;
        page.set_name(name);
        Ok(Self {
            page,
            has_pending: false,
        })
    }

    /// Adds a group, whose next collective is number 0, and returns the group's slot; `None` if all
    /// slots are taken.
    pub fn add_group(&self, number: u16, rank: usize, members: usize) -> Option<usize> {
        let words = self.page.words();
        let is_free = |offset: &usize| words[*offset].load(Ordering::Relaxed) == 0;
        let offset = (0..GROUPS).map(group_offset).find(is_free)?;
        self.page
            .set(offset + 1, (members as u64) << 32 | rank as u64);
        self.page.set(offset + 2, 0);
        self.page.set(offset, 1 + u64::from(number));
        Some(offset)
    }

    /// Removes a group.
    pub fn remove_group(&self, slot: Option<usize>) {
        if let Some(offset) = slot {
            self.page.set(offset, 0);
        }
    }

    /// Sets the number of a group's next collective.
    #[inline]
    pub fn set_next_sequence(&self, slot: Option<usize>, next: u32) {
        if let Some(offset) = slot {
            self.page.set(offset + 2, u64::from(next));
        }
    }

    /// Writes the pending collectives, as many as fit.
    pub fn write_pending(&mut self, pending: &[PendingCollective]) {
        self.has_pending = !pending.is_empty();
        let words = &self.page.words()[..];
        let odd = seqlock::begin_write(words, AT_GROUP_SEQ);
        for number in 0..MAX_PENDING {
            let offset = AT_GROUP_PENDING + number * GROUP_PENDING_WORDS;
            match pending.get(number) {
                Some(pending) => self.write(offset, pending),
                None => self.page.set(offset, 0),
            }
        }
        seqlock::end_write(words, AT_GROUP_SEQ, odd);
    }

    fn write(&self, offset: usize, pending: &PendingCollective) {
        let coll = pending.coll.map_or(JOIN, |coll| coll as u64);
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let flags = flag(!pending.is_exact, INEXACT) | flag(pending.awaits_room, AWAITS_ROOM);
        let header = [
            1 + coll,
            u64::from(pending.group),
            u64::from(pending.sequence),
            pending.since,
            u64::from(pending.members) << 32 | u64::from(pending.rank),
            u64::from(pending.count),
            flags,
            0,
        ];
        for (slot, word) in header.into_iter().enumerate() {
            self.page.set(offset + slot, word);
        }
        for number in 0..MAX_AWAITED {
            let offset = offset + GROUP_PENDING_HEADER + number * AWAITED_MEMBER_WORDS;
            let Some(awaited) = pending.awaited.get(number) else {
                self.page.set(offset, 0);
                continue;
            };
            let remote_number = awaited.number.map_or(0, |number| 1 + u64::from(number));
            let rank = 1 + u64::from(awaited.rank);
            self.page.set(offset, rank << 32 | remote_number);
            let name = &self.page.words()[offset + 1..offset + AWAITED_MEMBER_WORDS];
            write_text(name, &awaited.name);
        }
    }
}

const fn group_offset(number: usize) -> usize {
    AT_GROUPS + number * GROUP_WORDS
}

/// A group that an endpoint has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupEntry {
    /// The endpoint's number for the group.
    pub number: u16,
    /// The number of the group's next collective, from 0 on.
    pub next: u32,
}

/// The collectives of an endpoint as a reader sees them.
#[derive(Clone, Debug)]
pub struct GroupStats {
    /// The header of the page.
    pub header: PageHeader,
    /// The groups, as many as the page has room for.
    pub groups: Vec<GroupEntry>,
    /// The pending collectives and joins.
    pub pending: Vec<PendingCollective>,
}

impl GroupStats {
    /// Reads a page; `copy` copies all of it. `None` for a page of another kind or version.
    pub fn read<W: Words + ?Sized>(
        page: &W,
        copy: impl FnMut() -> Option<Box<[u64; GROUPS_WORDS]>>,
    ) -> Option<Self> {
        let (words, _) = copy_consistent(page, AT_GROUP_SEQ, copy)?;
        Self::parse(&words)
    }

    /// Reads the copy of a page.
    pub fn parse(words: &[u64; GROUPS_WORDS]) -> Option<Self> {
        let entries = words[AT_GROUPS..AT_GROUP_PENDING].chunks(GROUP_WORDS);
        let pending_words = words[AT_GROUP_PENDING..].chunks_exact(GROUP_PENDING_WORDS);
        Some(Self {
            header: PageHeader::parse(PageKind::Groups, words)?,
            groups: entries.filter_map(group_entry).collect(),
            pending: pending_words
                .take(MAX_PENDING)
                .filter_map(parse_pending)
                .collect(),
        })
    }
}

fn group_entry(words: &[u64]) -> Option<GroupEntry> {
    Some(GroupEntry {
        number: u16::try_from(words[0].checked_sub(1)?).ok()?,
        next: u32::try_from(words[2]).ok()?,
    })
}

fn parse_pending(words: &[u64]) -> Option<PendingCollective> {
    let coll = match words[0].checked_sub(1)? {
        JOIN => None,
        coll => Some(Op::from_raw(u32::try_from(coll).ok()?)?),
    };
    let awaited = words[GROUP_PENDING_HEADER..].chunks(AWAITED_MEMBER_WORDS);
    Some(PendingCollective {
        coll,
        group: u16::try_from(words[1]).ok()?,
        sequence: u32::try_from(words[2]).ok()?,
        since: words[3],
        rank: words[4] as u32,
        members: (words[4] >> 32) as u32,
        count: u32::try_from(words[5]).ok()?,
        is_exact: words[6] & INEXACT == 0,
        awaits_room: words[6] & AWAITS_ROOM != 0,
        awaited: awaited.filter_map(awaited_member).collect(),
    })
}

fn awaited_member(words: &[u64]) -> Option<AwaitedMember> {
    let remote_number = (words[0] as u32).checked_sub(1);
    Some(AwaitedMember {
        rank: ((words[0] >> 32) as u32).checked_sub(1)?,
        number: remote_number.and_then(|number| u16::try_from(number).ok()),
        name: read_text(&words[1..]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_page(groups: &GroupRecorder) -> GroupStats {
        let words = groups.page.words();
        let copy = || {
            let words: Vec<u64> = words.iter().map(|it| it.load(Ordering::Relaxed)).collect();
            words.into_boxed_slice().try_into().ok()
        };
        GroupStats::read(&words[..], copy).unwrap()
    }

    fn pending_with(coll: Option<Op>) -> PendingCollective {
        let awaited = |rank: u32| AwaitedMember {
            rank,
            number: (rank != 2).then_some(rank as u16 + 10),
            name: format!("12{rank}:0:0"),
        };
        PendingCollective {
            coll,
            group: 3,
            sequence: 17,
            since: 5,
            rank: 1,
            members: 9,
            count: 6,
            is_exact: coll.is_some(),
            awaits_room: coll.is_none(),
            awaited: (2..8).map(awaited).collect(),
        }
    }

    #[test]
    fn pending_collectives_are_read_as_written_until_they_complete() {
        let mut groups = GroupRecorder::open("test", "1:0:0").unwrap();
        let all: Vec<_> = (0..10).map(|_| pending_with(Some(Op::Allreduce))).collect();
        groups.write_pending(&all);
        assert_eq!(read_page(&groups).pending.len(), MAX_PENDING);
        let written = [pending_with(None), pending_with(Some(Op::Barrier))];
        groups.write_pending(&written);
        let read = read_page(&groups).pending;
        assert_eq!(read.len(), 2);
        for (read, written) in read.iter().zip(&written) {
            assert_eq!(read.awaited, written.awaited[..MAX_AWAITED]);
            let rest = |it: &PendingCollective| PendingCollective {
                awaited: Vec::new(),
                ..it.clone()
            };
            assert_eq!(format!("{:?}", rest(read)), format!("{:?}", rest(written)));
        }
        groups.write_pending(&[]);
        assert!(read_page(&groups).pending.is_empty() && !groups.has_pending);
    }

    #[test]
    fn a_group_shows_its_next_collective_until_it_is_left() {
        let groups = GroupRecorder::open("test", "1:0:0").unwrap();
        let slots: Vec<_> = (0..GROUPS as u16 + 2)
            .map(|it| groups.add_group(it, 0, 2))
            .collect();
        assert!(slots[..GROUPS].iter().all(Option::is_some) && slots[GROUPS].is_none());
        groups.set_next_sequence(slots[3], 7);
        groups.set_next_sequence(slots[GROUPS], 7);
        slots[4..]
            .iter()
            .for_each(|&slot| groups.remove_group(slot));
        let numbers: Vec<_> = read_page(&groups)
            .groups
            .iter()
            .map(|it| (it.number, it.next))
            .collect();
        assert_eq!(numbers, [(0, 0), (1, 0), (2, 0), (3, 7)]);
    }
}
