//! Messages of few bytes on lanes: both halves, and what becomes of those that nobody sends any more.

use selvedge::Errno;
use selvedge::shared::SharedBytes;

use super::engine::State;
use super::group::{Failure, Group, Running};
use super::lane::{self, Letter, MOST, Roads};
use super::plan::{Message, Span};
use super::tag::{self, Number};

/// Letters of one lane in one look: a member that writes nonsense without end stops nobody.
const AT_ONCE: usize = 64;

impl Group {
    /// The lane to a member for a message of so many bytes, if it goes there.
    #[inline]
    pub(super) fn lane(&self, rank: usize, len: usize) -> Option<u32> {
        match len <= MOST {
            true => self.lanes.get(rank).copied().flatten(),
            false => None,
        }
    }

    /// A letter that came before it was waited for.
    fn early(&mut self, lane: u32, tag: u64, roads: &mut Roads) -> Option<Letter> {
        let letter = self.early.remove(&(lane, tag))?;
        roads.let_go(lane);
        Some(letter)
    }

    /// Drops all of those.
    pub(super) fn drop_early(&mut self, roads: &mut Roads) {
        for ((lane, _), _) in self.early.drain() {
            roads.let_go(lane);
        }
    }
}

impl Running {
    /// Which message of the round that is under way, if it is waited for on a lane.
    #[inline]
    fn awaits(&self, lanes: &[Option<u32>], lane: u32, label: u32) -> Option<usize> {
        let is_it = |at: &usize| {
            let message = &self.plan.rounds[self.round].receives[*at];
            message.label == label && lanes[message.peer] == Some(lane)
        };
        bits(self.awaited).find(is_it)
    }

    /// Messages of the round that are waited for on lanes.
    fn awaited(&self) -> impl Iterator<Item = &Message> {
        bits(self.awaited).map(|at| &self.plan.rounds[self.round].receives[at])
    }

    /// The members of whom those are.
    pub(super) fn awaited_peers(&self) -> Vec<usize> {
        match self.awaited {
            0 => Vec::new(),
            _ => self.awaited().map(|message| message.peer).collect(),
        }
    }

    /// Waits for nothing on lanes any more.
    pub(super) fn give_up_letters(&mut self, lanes: &[Option<u32>], roads: &mut Roads) {
        for lane in self.awaited().filter_map(|message| lanes[message.peer]) {
            roads.had(lane);
        }
        self.open -= self.awaited.count_ones() as usize;
        self.awaited = 0;
    }
}

fn bits(word: u32) -> impl Iterator<Item = usize> {
    let below = |word: u32| (word != 0).then_some(word);
    std::iter::successors(below(word), move |&word| below(word & (word - 1)))
        .map(|word| word.trailing_zeros() as usize)
}

/// Sends a message of the collective with this tag.
///
/// # Errors
/// [`Errno::Again`] while there is no room; others if the member is lost.
#[inline]
pub(super) fn send(roads: &mut Roads, lane: u32, tag: u64, part: SharedBytes) -> Result<(), Errno> {
    roads.put(lane, &Letter::with(tag, part))
}

/// Waits for the message number `at` of a collective's round, unless it is here. Says whether it is
/// waited for.
///
/// # Errors
/// If what is here is something else.
#[inline]
pub(super) fn expect(
    roads: &mut Roads,
    group: &mut Group,
    running: usize,
    lane: u32,
    at: usize,
) -> Result<bool, Failure> {
    if !group.early.is_empty() {
        let running = &group.running[running];
        let Message { label, span, .. } = running.plan.rounds[running.round].receives[at];
        let (tag, to) = (
            tag::data(group.number, running.sequence, label),
            running.memory.part(span),
        );
        if let Some(letter) = group.early(lane, tag, roads) {
            return receive(&letter, span, to).map(|()| false);
        }
    }
    group.running[running].awaited |= 1 << at;
    roads.expect(lane);
    Ok(true)
}

/// Puts a letter where it belongs.
#[inline]
fn receive(letter: &Letter, span: Span, to: SharedBytes) -> Result<(), Failure> {
    if letter.len != span.len {
        let detail = format!(
            "a message of {} bytes where {} were due",
            letter.len, span.len
        );
        return Err((Errno::Trunc, detail));
    }
    letter.write(to);
    Ok(())
}

impl State {
    /// Takes the letters that are waited for. How many there were.
    #[inline]
    pub(super) fn take_letters(&mut self) -> usize {
        // Whoever has ended by now has put all that it ever will.
        let has_losses = self.roads.has_losses();
        let (mut place, mut taken, mut from_one) = (0, 0, 0);
        while let Some((lane, letter)) = self.roads.look(place) {
            if let Some(letter) = letter {
                (taken, from_one) = (taken + 1, from_one + 1);
                self.arrived(lane, &letter);
            }
            if letter.is_none() || from_one == AT_ONCE {
                (place, from_one) = (place + 1, 0);
            }
        }
        if has_losses {
            self.end_what_waits_for_the_lost();
        }
        taken
    }

    /// A member's letter, as it says itself.
    fn arrived(&mut self, lane: u32, letter: &Letter) {
        let Some((number, sequence, label)) = tag::of_data(letter.tag) else {
            return;
        };
        if self.arrived_quickly(number, lane, letter) {
            return;
        }
        let group = self.groups.get_mut(&number);
        let Some(group) = group.filter(|group| group.broken.is_none()) else {
            return;
        };
        let mut all = group.running.iter_mut();
        if let Some(running) = all.find(|running| running.sequence == sequence)
            && let Some(at) = running.awaits(&group.lanes, lane, label)
        {
            running.awaited &= !(1 << at);
            running.open -= 1;
            let span = running.plan.rounds[running.round].receives[at].span;
            let outcome = receive(letter, span, running.memory.part(span));
            self.roads.had(lane);
            return match outcome {
                Ok(()) => self.advance(number, sequence),
                Err(failure) => self.lost(number, sequence, failure),
            };
        }
        if group.early.insert((lane, letter.tag), *letter).is_none() {
            self.roads.kept(lane);
        }
    }

    /// Opens the lanes of a group that all members have joined.
    ///
    /// # Errors
    /// If a member is lost.
    pub(super) fn open_lanes(&mut self, number: Number) -> Result<(), Failure> {
        let Some(group) = self.groups.get_mut(&number) else {
            return Ok(());
        };
        let mut lanes = vec![None; group.members.len()];
        for rank in group.others() {
            match self.roads.open(group.members[rank]) {
                Ok(None) => return Ok(()),
                Ok(lane) => lanes[rank] = lane,
                Err(errno) => {
                    self.roads.leave(&lanes);
                    return Err(lane::lost(rank, errno));
                }
            }
        }
        group.lanes = lanes;
        Ok(())
    }

    /// Collectives that wait for a letter of somebody who is gone, and whose last letter was taken.
    #[cold]
    fn end_what_waits_for_the_lost(&mut self) {
        self.hand_all_over();
        let mut over = Vec::new();
        for group in self.groups.values() {
            for running in &group.running {
                let mut awaited = running.awaited().map(|message| message.peer);
                let is_lost = |rank: &usize| {
                    group.lanes[*rank].is_some_and(|lane| self.roads.has_ended(lane))
                };
                if let Some(rank) = awaited.find(is_lost) {
                    over.push((group.number, running.sequence, rank));
                }
            }
        }
        for (number, sequence, rank) in over {
            self.lost(number, sequence, lane::lost(rank, Errno::ConnReset));
        }
    }
}
