//! `Extents`: which pages of an arena are allocated, and how long each allocation is.
//!
//! A bitmap has one bit for each page, and a table has the length of the allocation that begins at
//! a page. The search is first fit from the lowest page, so that the committed part of an arena
//! stays small. No crate does that without allocating, with alignment and with growth in place:
//! `offset-allocator` has neither of the latter two.

/// The allocated pages of an arena.
#[derive(Debug)]
pub(crate) struct Extents<'a> {
    /// One bit for each page, which is set while the page is allocated.
    words: &'a mut [u64],
    /// The number of pages of the allocation that begins at a page; 0 if none begins there.
    lens: &'a mut [u32],
    /// No run of free pages is longer. A search that fails lowers it, and a free raises it.
    longest_free: usize,
    /// The number of allocations.
    live: usize,
}

const WORD: usize = u64::BITS as usize;

impl<'a> Extents<'a> {
    /// Uses zeroed tables. `lens` has one entry for each page, and `words` one bit.
    pub(crate) fn new(words: &'a mut [u64], lens: &'a mut [u32]) -> Self {
        assert_eq!(words.len() * WORD, lens.len(), "tables for the same pages");
        let longest_free = lens.len();
        Self {
            words,
            lens,
            longest_free,
            live: 0,
        }
    }

    /// The number of allocations.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    /// Allocates `count` pages at the lowest free page that is a multiple of `align`. Returns the
    /// first page.
    pub(crate) fn allocate(&mut self, count: usize, align: usize) -> Option<usize> {
        if count == 0 || count > self.longest_free {
            return None;
        }
        let mut first = 0;
        loop {
            first = self.next_free(first).next_multiple_of(align);
            let end = first
                .checked_add(count)
                .filter(|end| *end <= self.lens.len());
            let Some(end) = end else { break };
            match self.last_used(first, end) {
                None => {
                    self.fill(first, end, true);
                    self.lens[first] = count as u32;
                    self.live += 1;
                    return Some(first);
                }
                Some(used) => first = used + 1,
            }
        }
        if align == 1 {
            self.longest_free = count - 1;
        }
        None
    }

    /// The number of pages of the allocation that begins at `first`; `None` if none begins there.
    pub(crate) fn len_of(&self, first: usize) -> Option<usize> {
        let len = *self.lens.get(first)? as usize;
        (len > 0).then_some(len)
    }

    /// Frees the allocation that begins at `first`. Returns its number of pages; `None` without
    /// effect if none begins there.
    pub(crate) fn free(&mut self, first: usize) -> Option<usize> {
        let count = self.len_of(first)?;
        self.fill(first, first + count, false);
        self.lens[first] = 0;
        self.live -= 1;
        self.longest_free = self.lens.len();
        Some(count)
    }

    /// Changes the number of pages of an allocation in place. Returns `false` without effect if the
    /// pages behind it are not free.
    pub(crate) fn resize(&mut self, first: usize, count: usize) -> bool {
        let Some(old) = self.len_of(first) else {
            return false;
        };
        let (old_end, end) = (first + old, first + count);
        if count == 0 || end > self.lens.len() {
            return false;
        }
        if end > old_end {
            if self.last_used(old_end, end).is_some() {
                return false;
            }
            self.fill(old_end, end, true);
        } else {
            self.fill(end, old_end, false);
            self.longest_free = self.lens.len();
        }
        self.lens[first] = count as u32;
        true
    }

    /// Returns the first free page from `page` on, or the number of pages if there is none.
    fn next_free(&self, page: usize) -> usize {
        let mut index = page / WORD;
        let mut mask = !0 << (page % WORD);
        while let Some(word) = self.words.get(index) {
            let free = !word & mask;
            if free != 0 {
                return index * WORD + free.trailing_zeros() as usize;
            }
            index += 1;
            mask = !0;
        }
        self.lens.len()
    }

    /// Returns the last allocated page from `first` to before `end`.
    fn last_used(&self, first: usize, end: usize) -> Option<usize> {
        let (low, high) = (first / WORD, (end - 1) / WORD);
        let last_in = |index: usize, mask: u64| {
            let used = self.words[index] & mask;
            (used != 0).then(|| index * WORD + (WORD - 1) - used.leading_zeros() as usize)
        };
        if low == high {
            return last_in(low, mask(low, first, end));
        }
        let between = &self.words[low + 1..high];
        last_in(high, mask(high, first, end))
            .or_else(|| last_in(low + 1 + last_nonzero(between)?, !0))
            .or_else(|| last_in(low, mask(low, first, end)))
    }

    fn fill(&mut self, first: usize, end: usize, is_used: bool) {
        if first == end {
            return;
        }
        let (low, high) = (first / WORD, (end - 1) / WORD);
        for index in [low, high] {
            let mask = mask(index, first, end);
            if is_used {
                self.words[index] |= mask;
            } else {
                self.words[index] &= !mask;
            }
        }
        if low < high {
            self.words[low + 1..high].fill(if is_used { !0 } else { 0 });
        }
    }
}

/// Returns the index of the last word that is not zero. Allocations of many MiB have hundreds of
/// words, so the search tests several at once.
fn last_nonzero(words: &[u64]) -> Option<usize> {
    let mut end = words.len();
    for chunk in words.rchunks(8) {
        if chunk.iter().fold(0, |all, word| all | word) != 0 {
            return words[..end].iter().rposition(|word| *word != 0);
        }
        end -= chunk.len();
    }
    None
}

/// The bits of the word `index` for the pages from `first` to before `end`.
fn mask(index: usize, first: usize, end: usize) -> u64 {
    let start = index * WORD;
    let low = first.saturating_sub(start);
    let high = (end - start).min(WORD);
    (!0 << low) & (!0 >> (WORD - high))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const PAGES: usize = 1024;

    #[test]
    fn the_lowest_free_pages_are_allocated_first() {
        let (mut words, mut lens) = ([0; PAGES / WORD], [0; PAGES]);
        let mut extents = Extents::new(&mut words, &mut lens);
        assert_eq!(extents.allocate(1, 1), Some(0));
        assert_eq!(extents.allocate(100, 1), Some(1));
        assert_eq!(extents.allocate(4, 16), Some(112));
        assert_eq!(extents.allocate(11, 1), Some(101));
        assert_eq!(extents.allocate(PAGES - 116, 1), Some(116));
        assert_eq!(extents.allocate(1, 1), None);
        assert_eq!(extents.free(1), Some(100));
        assert_eq!(extents.free(1), None);
        assert_eq!(extents.allocate(101, 1), None);
        assert_eq!(extents.allocate(100, 1), Some(1));
        assert_eq!(extents.live(), 5);
    }

    /// The allocations of the model, by first page.
    #[derive(Default)]
    struct Model(BTreeMap<usize, usize>);

    impl Model {
        fn is_free(&self, first: usize, end: usize, except: Option<usize>) -> bool {
            end <= PAGES
                && self.0.iter().all(|(&other, &len)| {
                    Some(other) == except || other >= end || other + len <= first
                })
        }

        /// The lowest fit, by trying every page.
        fn fit(&self, count: usize, align: usize) -> Option<usize> {
            let mut pages = (0..PAGES).step_by(align);
            pages.find(|&first| self.is_free(first, first + count, None))
        }

        fn nth(&self, n: usize) -> Option<usize> {
            self.0.keys().nth(n % self.0.len().max(1)).copied()
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Allocate(usize, u32),
        Free(usize),
        Resize(usize, usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (1..400_usize, 0..6_u32).prop_map(|(count, shift)| Op::Allocate(count, shift)),
            any::<usize>().prop_map(Op::Free),
            (any::<usize>(), 1..400_usize).prop_map(|(n, count)| Op::Resize(n, count)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { fork: false, ..ProptestConfig::with_cases(400) })]
        #[test]
        fn extents_agree_with_a_model_that_tries_every_page(ops in vec(op(), 1..120)) {
            let (mut words, mut lens) = ([0; PAGES / WORD], [0; PAGES]);
            let mut extents = Extents::new(&mut words, &mut lens);
            let mut model = Model::default();
            for op in ops {
                match op {
                    Op::Allocate(count, shift) => {
                        let expected = model.fit(count, 1 << shift);
                        prop_assert_eq!(extents.allocate(count, 1 << shift), expected);
                        model.0.extend(expected.map(|first| (first, count)));
                    }
                    Op::Free(n) => {
                        let Some(first) = model.nth(n) else { continue };
                        prop_assert_eq!(extents.free(first), model.0.remove(&first));
                    }
                    Op::Resize(n, count) => {
                        let Some(first) = model.nth(n) else { continue };
                        let fits = model.is_free(first, first + count, Some(first));
                        prop_assert_eq!(extents.resize(first, count), fits);
                        if fits {
                            model.0.insert(first, count);
                        }
                    }
                }
                prop_assert_eq!(extents.live(), model.0.len());
                for first in 0..PAGES {
                    prop_assert_eq!(extents.len_of(first), model.0.get(&first).copied());
                }
            }
        }
    }
}
