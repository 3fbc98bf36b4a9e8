//! A linked list in order of arrival, whose members can be removed from the middle.

use super::examine;

/// The slot of a member; it is reused after the member's removal.
pub(super) type Slot = u32;

/// The slot of no member.
pub(super) const NONE: Slot = u32::MAX;

/// Values in the order in which they were pushed.
///
/// The members are in one vector, linked by their slots, so that a queue that has reached its size
/// does not allocate. Each member gets a number that grows with every push: of two members the one
/// with the lower number arrived first.
#[derive(Debug)]
pub(super) struct Queue<T> {
    nodes: Vec<Node<T>>,
    head: Slot,
    /// The last member, if there is one.
    tail: Slot,
    /// The first of the unused nodes, linked by `next`.
    free: Slot,
    pushes: u64,
    removals: u64,
}

/// A search ended before the end of the queue.
#[derive(Debug)]
pub(super) struct LimitReached;

#[derive(Debug)]
struct Node<T> {
    value: Option<T>,
    number: u64,
    /// The previous member; not valid for the head.
    prev: Slot,
    next: Slot,
}

impl<T> Queue<T> {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            head: NONE,
            tail: NONE,
            free: NONE,
            pushes: 0,
            removals: 0,
        }
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        (self.pushes - self.removals) as usize
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// The first member, or [`NONE`].
    #[inline]
    pub(super) const fn head(&self) -> Slot {
        self.head
    }

    /// The number that the next member will get.
    pub(super) const fn pushes(&self) -> u64 {
        self.pushes
    }

    /// The next member, or [`NONE`].
    #[inline]
    pub(super) fn next(&self, slot: Slot) -> Slot {
        self.nodes[slot as usize].next
    }

    /// The number of a member.
    #[inline]
    pub(super) fn number(&self, slot: Slot) -> u64 {
        self.nodes[slot as usize].number
    }

    /// The member in a slot; `None` for [`NONE`] and for a free slot.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&T> {
        self.nodes.get(slot as usize)?.value.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut T> {
        self.nodes.get_mut(slot as usize)?.value.as_mut()
    }

    /// Every member with its slot, first to last.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        self.iter_from(self.head)
    }

    /// The members from the one at `slot` on.
    pub(super) fn iter_from(&self, slot: Slot) -> impl Iterator<Item = (Slot, &T)> {
        let member = |slot| Some((slot, self.get(slot)?));
        std::iter::successors(member(slot), move |&(slot, _)| member(self.next(slot)))
    }

    /// The first of at most `limit` members from `slot` on for which `matches` returns `true`.
    ///
    /// `Err` if there are more members than were examined.
    pub(super) fn find_near(
        &self,
        slot: Slot,
        limit: usize,
        matches: impl Fn(&T) -> bool,
    ) -> Result<Option<Slot>, LimitReached> {
        for (examined, (slot, value)) in self.iter_from(slot).enumerate() {
            if examined == limit {
                return Err(LimitReached);
            }
            examine();
            if matches(value) {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// The first member with this number or a higher one, searched from the end.
    pub(super) fn first_since(&self, number: u64) -> Slot {
        let mut first = NONE;
        while first != self.head {
            let slot = match first {
                NONE => self.tail,
                first => self.nodes[first as usize].prev,
            };
            if self.number(slot) < number {
                break;
            }
            examine();
            first = slot;
        }
        first
    }

    /// Adds a member at the end.
    #[inline(always)]
    pub(super) fn push(&mut self, value: T) {
        if self.free == NONE {
            self.grow();
        }
        let slot = self.free;
        let node = &mut self.nodes[slot as usize];
        self.free = node.next;
        // The node was free: it has no earlier value, for which the compiler would emit a drop.
        std::mem::forget(node.value.replace(value));
        node.number = self.pushes;
        node.prev = self.tail;
        node.next = NONE;
        match self.head {
            NONE => self.head = slot,
            _ => self.nodes[self.tail as usize].next = slot,
        }
        self.tail = slot;
        self.pushes += 1;
    }

    /// Removes the member in a slot; `None` as for [`Self::get`].
    #[inline]
    pub(super) fn remove(&mut self, slot: Slot) -> Option<T> {
        if slot == self.head {
            return self.pop();
        }
        let node = self.nodes.get_mut(slot as usize)?;
        let value = Some(node.value.take()?);
        let (prev, next) = (node.prev, node.next);
        node.next = self.free;
        self.free = slot;
        self.nodes[prev as usize].next = next;
        match self.nodes.get_mut(next as usize) {
            Some(next) => next.prev = prev,
            None => self.tail = prev,
        }
        self.removals += 1;
        value
    }

    /// The first member and its number.
    #[inline(always)]
    pub(super) fn first(&self) -> Option<(&T, u64)> {
        let node = self.nodes.get(self.head as usize)?;
        Some((node.value.as_ref()?, node.number))
    }

    /// The first member, mutable, and its number.
    #[inline(always)]
    pub(super) fn first_mut(&mut self) -> Option<(&mut T, u64)> {
        let node = self.nodes.get_mut(self.head as usize)?;
        Some((node.value.as_mut()?, node.number))
    }

    /// Removes the first member.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<T> {
        let slot = self.head;
        let node = self.nodes.get_mut(slot as usize)?;
        let value = node.value.take();
        self.head = std::mem::replace(&mut node.next, self.free);
        self.free = slot;
        self.removals += 1;
        value
    }

    #[cold]
    fn grow(&mut self) {
        let slot = Slot::try_from(self.nodes.len()).ok();
        self.free = slot
            .filter(|&slot| slot != NONE)
            .expect("memory is exhausted before the slots are");
        self.nodes.push(Node {
            value: None,
            number: 0,
            prev: NONE,
            next: NONE,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u32) -> (Queue<u32>, Vec<Slot>) {
        let mut queue = Queue::new();
        (0..count).for_each(|value| queue.push(value));
        let slots = queue.iter().map(|(slot, _)| slot).collect();
        (queue, slots)
    }

    fn values(queue: &Queue<u32>) -> Vec<u32> {
        queue.iter().map(|(_, value)| *value).collect()
    }

    #[test]
    fn members_keep_their_order_when_one_leaves() {
        for removed in 0..3 {
            let (mut queue, slots) = filled(3);
            assert_eq!(queue.remove(slots[removed as usize]), Some(removed));
            assert_eq!(queue.remove(slots[removed as usize]), None);
            queue.push(3);
            let expected: Vec<_> = (0..4).filter(|&v| v != removed).collect();
            assert_eq!(values(&queue), expected);
            assert_eq!(queue.len(), 3);
        }
    }

    #[test]
    fn the_first_member_leaves_first() {
        let (mut queue, _) = filled(3);
        for expected in 0..3 {
            assert_eq!(queue.first(), Some((&expected, u64::from(expected))));
            assert_eq!(queue.pop(), Some(expected));
        }
        assert_eq!(queue.first(), None);
        assert_eq!(queue.pop(), None);
        queue.push(9);
        assert_eq!(values(&queue), [9]);
    }

    #[test]
    fn slots_are_reused() {
        let (mut queue, slots) = filled(4);
        for _ in 0..10 {
            for &slot in &slots {
                queue.remove(slot).unwrap();
            }
            assert!(queue.is_empty());
            (0..4).for_each(|value| queue.push(value));
            assert!(queue.iter().all(|(slot, _)| slots.contains(&slot)));
        }
    }

    #[test]
    fn the_first_since_a_number_is_found_over_gaps() {
        let (mut queue, slots) = filled(5);
        queue.remove(slots[2]);
        assert_eq!(queue.first_since(2), slots[3]);
        assert_eq!(queue.first_since(0), slots[0]);
        assert_eq!(queue.first_since(5), NONE);
    }
}
