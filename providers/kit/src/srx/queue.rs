//! A list in order of arrival whose members can be removed from the middle.

/// A member's place; it is given out again after the member's removal.
pub(super) type Slot = u32;

/// No member.
pub(super) const NONE: Slot = u32::MAX;

/// Values in the order in which they were pushed.
///
/// The members live in one vector, linked by their places, so that a queue that has reached its
/// size allocates no more. Each gets a number that grows with every push: of two members the one
/// with the lower number came first.
#[derive(Debug)]
pub(super) struct Queue<T> {
    nodes: Vec<Node<T>>,
    head: Slot,
    tail: Slot,
    /// The first of the unused nodes, linked by `next`.
    free: Slot,
    len: usize,
    pushes: u64,
}

#[derive(Debug)]
struct Node<T> {
    value: Option<T>,
    number: u64,
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
            len: 0,
            pushes: 0,
        }
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// The member that came first, or [`NONE`].
    #[inline]
    pub(super) const fn head(&self) -> Slot {
        self.head
    }

    /// The number that the next member will get.
    pub(super) const fn pushes(&self) -> u64 {
        self.pushes
    }

    #[inline]
    pub(super) fn next(&self, slot: Slot) -> Slot {
        self.nodes[slot as usize].next
    }

    #[inline]
    pub(super) fn number(&self, slot: Slot) -> u64 {
        self.nodes[slot as usize].number
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> &T {
        let value = self.nodes[slot as usize].value.as_ref();
        value.expect("the slot has a member")
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> &mut T {
        let value = self.nodes[slot as usize].value.as_mut();
        value.expect("the slot has a member")
    }

    /// Every place, first to last.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots_from(self.head)
    }

    /// The place `slot` and those after it.
    pub(super) fn slots_from(&self, slot: Slot) -> impl Iterator<Item = Slot> {
        let member = |slot: Slot| (slot != NONE).then_some(slot);
        std::iter::successors(member(slot), move |&slot| member(self.next(slot)))
    }

    /// The first member with this number or a higher one, found from the end.
    pub(super) fn first_since(&self, number: u64) -> Slot {
        let mut first = NONE;
        let mut slot = self.tail;
        while slot != NONE && self.number(slot) >= number {
            first = slot;
            slot = self.nodes[slot as usize].prev;
        }
        first
    }

    #[inline(always)]
    pub(super) fn push(&mut self, value: T) -> Slot {
        let slot = match self.free {
            NONE => self.grow(),
            slot => slot,
        };
        let node = &mut self.nodes[slot as usize];
        self.free = node.next;
        node.value = Some(value);
        node.number = self.pushes;
        node.prev = self.tail;
        node.next = NONE;
        match self.tail {
            NONE => self.head = slot,
            tail => self.nodes[tail as usize].next = slot,
        }
        self.tail = slot;
        self.pushes += 1;
        self.len += 1;
        slot
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, slot: Slot) -> T {
        let node = &mut self.nodes[slot as usize];
        let value = node.value.take().expect("the slot has a member");
        let (prev, next) = (node.prev, node.next);
        node.next = self.free;
        self.free = slot;
        match prev {
            NONE => self.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
        self.len -= 1;
        value
    }

    #[cold]
    fn grow(&mut self) -> Slot {
        let slot = Slot::try_from(self.nodes.len()).expect("memory ends before the slots do");
        self.nodes.push(Node {
            value: None,
            number: 0,
            prev: NONE,
            next: NONE,
        });
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(queue: &Queue<u32>) -> Vec<u32> {
        queue.slots().map(|slot| *queue.get(slot)).collect()
    }

    #[test]
    fn members_keep_their_order_when_one_leaves() {
        for gone in 0..3 {
            let mut queue = Queue::new();
            let slots: Vec<_> = (0..3).map(|v| queue.push(v)).collect();
            assert_eq!(queue.remove(slots[gone as usize]), gone);
            queue.push(3);
            let expected: Vec<_> = (0..4).filter(|&v| v != gone).collect();
            assert_eq!(values(&queue), expected);
            assert_eq!(queue.len(), 3);
        }
    }

    #[test]
    fn places_are_used_again() {
        let mut queue = Queue::new();
        for round in 0..10 {
            let slots: Vec<_> = (0..4).map(|v| queue.push(v)).collect();
            assert!(
                slots.iter().all(|&slot| slot < 4),
                "round {round}: {slots:?}"
            );
            slots.into_iter().for_each(|slot| {
                queue.remove(slot);
            });
            assert!(queue.is_empty());
        }
    }

    #[test]
    fn the_first_since_a_number_is_found_over_gaps() {
        let mut queue = Queue::new();
        let slots: Vec<_> = (0..5).map(|v| queue.push(v)).collect();
        queue.remove(slots[2]);
        assert_eq!(queue.first_since(2), slots[3]);
        assert_eq!(queue.first_since(0), slots[0]);
        assert_eq!(queue.first_since(5), NONE);
    }
}
