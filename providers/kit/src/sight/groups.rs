//! What an endpoint waits for in its collectives: which, with which members, and for whom.
//!
//! The layer of collectives writes this, under its own lock, when something takes long; of each group
//! it always says how many collectives it has begun.

use std::sync::atomic::Ordering;

use selvedge::Error;
use selvedge::collective::Op;

use super::layout::{
    AT_GROUP_SEQ, AT_GROUP_WAITS, AT_GROUPS, AWAITED, AWAITED_WORDS, GROUP_WAIT_HEAD,
    GROUP_WAIT_WORDS, GROUP_WAITS, GROUP_WORDS, GROUPS, GROUPS_WORDS, Kind,
};
use super::seen::{Head, one_version, text};
use super::seq::{self, Words};
use super::sheet::{Sheet, now, put_text};

/// The word of a join where a collective has its number.
const JOIN: u64 = 0xff;
const INEXACT: u64 = 1;
const OUTWARDS: u64 = 2;

/// What the layer of collectives writes of one endpoint.
#[derive(Debug)]
pub struct Groups {
    sheet: Sheet<GROUPS_WORDS>,
    /// Whether anything is waited for, as it was written last.
    pub(crate) is_shown: bool,
}

/// Something that takes long.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// Which collective; none for a join.
    pub coll: Option<Op>,
    /// The endpoint's own number for the group.
    pub group: u16,
    /// Which of the group's collectives it is, from 0 on.
    pub sequence: u32,
    /// Since when, on the system's monotonic clock, in nanoseconds.
    pub since: u64,
    /// Who the endpoint is.
    pub rank: u32,
    /// How many members there are.
    pub members: u32,
    /// How many members are waited for.
    pub count: u32,
    /// Whether these are all of those that are named; otherwise some of them.
    pub is_exact: bool,
    /// Whether it is their room that is waited for, not their messages.
    pub is_outwards: bool,
    /// Those that are waited for; some of them, if they are many.
    pub awaited: Vec<Awaited>,
}

/// A member that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Who it is in the group.
    pub rank: u32,
    /// Its number for the group, if it has told.
    pub number: Option<u16>,
    /// Its name.
    pub name: String,
}

impl Groups {
    /// A sheet for the endpoint of a provider that has this name.
    ///
    /// # Errors
    /// As [`super::Page::open`].
    pub fn open(provider: &str, name: &str) -> Result<Self, Error> {
        let sheet = Sheet::open(Kind::Groups, provider, now())?;
        sheet.set_name(name);
        Ok(Self {
            sheet,
            is_shown: false,
        })
    }

    /// A place for a group, which begins its collectives at 0; none if too many have one.
    pub fn join(&self, number: u16, rank: usize, members: usize) -> Option<usize> {
        let words = self.sheet.words();
        let is_free = |at: &usize| words[*at].load(Ordering::Relaxed) == 0;
        let at = (0..GROUPS).map(group_at).find(is_free)?;
        self.sheet.set(at + 1, (members as u64) << 32 | rank as u64);
        self.sheet.set(at + 2, 0);
        self.sheet.set(at, 1 + u64::from(number));
        Some(at)
    }

    /// The opposite.
    pub fn leave(&self, place: Option<usize>) {
        if let Some(at) = place {
            self.sheet.set(at, 0);
        }
    }

    /// Says which collective of a group is the next.
    #[inline]
    pub fn begun(&self, place: Option<usize>, next: u32) {
        if let Some(at) = place {
            self.sheet.set(at + 2, u64::from(next));
        }
    }

    /// Writes down what is waited for, as far as there is room.
    pub fn show(&mut self, waiting: &[Waiting]) {
        self.is_shown = !waiting.is_empty();
        let words = &self.sheet.words()[..];
        let odd = seq::begin(words, AT_GROUP_SEQ);
        for number in 0..GROUP_WAITS {
            let at = AT_GROUP_WAITS + number * GROUP_WAIT_WORDS;
            match waiting.get(number) {
                Some(waiting) => self.write(at, waiting),
                None => self.sheet.set(at, 0),
            }
        }
        seq::end(words, AT_GROUP_SEQ, odd);
    }

    fn write(&self, at: usize, waiting: &Waiting) {
        let coll = waiting.coll.map_or(JOIN, |coll| coll as u64);
        let flag = |is_so: bool, flag: u64| if is_so { flag } else { 0 };
        let flags = flag(!waiting.is_exact, INEXACT) | flag(waiting.is_outwards, OUTWARDS);
        let head = [
            1 + coll,
            u64::from(waiting.group),
            u64::from(waiting.sequence),
            waiting.since,
            u64::from(waiting.members) << 32 | u64::from(waiting.rank),
            u64::from(waiting.count),
            flags,
            0,
        ];
        for (place, word) in head.into_iter().enumerate() {
            self.sheet.set(at + place, word);
        }
        for number in 0..AWAITED {
            let at = at + GROUP_WAIT_HEAD + number * AWAITED_WORDS;
            let Some(awaited) = waiting.awaited.get(number) else {
                self.sheet.set(at, 0);
                continue;
            };
            let theirs = awaited.number.map_or(0, |number| 1 + u64::from(number));
            let rank = 1 + u64::from(awaited.rank);
            self.sheet.set(at, rank << 32 | theirs);
            let name = &self.sheet.words()[at + 1..at + AWAITED_WORDS];
            put_text(name, &awaited.name);
        }
    }
}

const fn group_at(number: usize) -> usize {
    AT_GROUPS + number * GROUP_WORDS
}

/// A group that an endpoint has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenGroup {
    /// The endpoint's own number for it.
    pub number: u16,
    /// Which collective is the next, from 0 on.
    pub next: u32,
}

/// The collectives of an endpoint, as somebody else reads them.
#[derive(Clone, Debug)]
pub struct SeenGroups {
    /// Whose they are.
    pub head: Head,
    /// Some of its groups.
    pub groups: Vec<SeenGroup>,
    /// What takes long.
    pub waiting: Vec<Waiting>,
}

impl SeenGroups {
    /// Reads a sheet; `copy` copies all of it. `None` for what is none of this version.
    pub fn read<W: Words + ?Sized>(
        sheet: &W,
        copy: impl FnMut() -> Option<Box<[u64; GROUPS_WORDS]>>,
    ) -> Option<Self> {
        let (words, _) = one_version(sheet, AT_GROUP_SEQ, copy)?;
        Self::of(&words)
    }

    /// Reads the copy of a sheet.
    pub fn of(words: &[u64; GROUPS_WORDS]) -> Option<Self> {
        let rows = words[AT_GROUPS..AT_GROUP_WAITS].chunks(GROUP_WORDS);
        let waits = words[AT_GROUP_WAITS..].chunks_exact(GROUP_WAIT_WORDS);
        Some(Self {
            head: Head::of(Kind::Groups, words)?,
            groups: rows.filter_map(group).collect(),
            waiting: waits.take(GROUP_WAITS).filter_map(waiting).collect(),
        })
    }
}

fn group(words: &[u64]) -> Option<SeenGroup> {
    Some(SeenGroup {
        number: u16::try_from(words[0].checked_sub(1)?).ok()?,
        next: u32::try_from(words[2]).ok()?,
    })
}

fn waiting(words: &[u64]) -> Option<Waiting> {
    let coll = match words[0].checked_sub(1)? {
        JOIN => None,
        coll => Some(Op::from_raw(u32::try_from(coll).ok()?)?),
    };
    let awaited = words[GROUP_WAIT_HEAD..].chunks(AWAITED_WORDS);
    Some(Waiting {
        coll,
        group: u16::try_from(words[1]).ok()?,
        sequence: u32::try_from(words[2]).ok()?,
        since: words[3],
        rank: words[4] as u32,
        members: (words[4] >> 32) as u32,
        count: u32::try_from(words[5]).ok()?,
        is_exact: words[6] & INEXACT == 0,
        is_outwards: words[6] & OUTWARDS != 0,
        awaited: awaited.filter_map(one_awaited).collect(),
    })
}

fn one_awaited(words: &[u64]) -> Option<Awaited> {
    let theirs = (words[0] as u32).checked_sub(1);
    Some(Awaited {
        rank: ((words[0] >> 32) as u32).checked_sub(1)?,
        number: theirs.and_then(|number| u16::try_from(number).ok()),
        name: text(&words[1..]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(groups: &Groups) -> SeenGroups {
        let words = groups.sheet.words();
        let copy = || {
            let words: Vec<u64> = words.iter().map(|it| it.load(Ordering::Relaxed)).collect();
            words.into_boxed_slice().try_into().ok()
        };
        SeenGroups::read(&words[..], copy).unwrap()
    }

    fn one(coll: Option<Op>) -> Waiting {
        let awaited = |rank: u32| Awaited {
            rank,
            number: (rank != 2).then_some(rank as u16 + 10),
            name: format!("12{rank}:0:0"),
        };
        Waiting {
            coll,
            group: 3,
            sequence: 17,
            since: 5,
            rank: 1,
            members: 9,
            count: 6,
            is_exact: coll.is_some(),
            is_outwards: coll.is_none(),
            awaited: (2..8).map(awaited).collect(),
        }
    }

    #[test]
    fn what_is_waited_for_is_read_as_it_was_written_and_is_gone_when_it_came() {
        let mut groups = Groups::open("test", "1:0:0").unwrap();
        let all: Vec<_> = (0..10).map(|_| one(Some(Op::Allreduce))).collect();
        groups.show(&all);
        assert_eq!(seen(&groups).waiting.len(), GROUP_WAITS);
        let written = [one(None), one(Some(Op::Barrier))];
        groups.show(&written);
        let read = seen(&groups).waiting;
        assert_eq!(read.len(), 2);
        for (read, written) in read.iter().zip(&written) {
            assert_eq!(read.awaited, written.awaited[..AWAITED]);
            let rest = |it: &Waiting| Waiting {
                awaited: Vec::new(),
                ..it.clone()
            };
            assert_eq!(format!("{:?}", rest(read)), format!("{:?}", rest(written)));
        }
        groups.show(&[]);
        assert!(seen(&groups).waiting.is_empty() && !groups.is_shown);
    }

    #[test]
    fn groups_say_which_collective_is_the_next_as_long_as_they_are_joined() {
        let groups = Groups::open("test", "1:0:0").unwrap();
        let places: Vec<_> = (0..GROUPS as u16 + 2)
            .map(|it| groups.join(it, 0, 2))
            .collect();
        assert!(places[..GROUPS].iter().all(Option::is_some) && places[GROUPS].is_none());
        groups.begun(places[3], 7);
        groups.begun(places[GROUPS], 7);
        places[4..].iter().for_each(|&place| groups.leave(place));
        let numbers: Vec<_> = seen(&groups)
            .groups
            .iter()
            .map(|it| (it.number, it.next))
            .collect();
        assert_eq!(numbers, [(0, 0), (1, 0), (2, 0), (3, 7)]);
    }
}
