//! The indices of the unexpected messages by source and tag, one for each kind of search.

use selvedge::TagMatch;

use super::index::{Index, Key};
use super::queue::{LimitReached, NONE, Queue, Slot};
use super::{Envelope, LINEAR_LIMIT, MASKS, Source, Unexpected, examine};

/// One index for each pair of ignore mask and directedness that was searched for.
#[derive(Debug, Default)]
pub(super) struct Views(Vec<View>);

/// Every index is in use for another pair.
#[derive(Debug)]
pub(super) struct NoView;

impl Views {
    /// The message that arrived first among those that a receive with this source and tag takes.
    pub(super) fn first<U>(
        &mut self,
        unexpected: &Queue<Unexpected<U>>,
        src: Source,
        tag: TagMatch,
    ) -> Result<Option<Slot>, NoView> {
        let view = self.choose(src != Source::ANY, tag.ignore)?;
        let key = Key::new(src, tag.tag, tag.ignore);
        if view.last_miss != Some(key) {
            let indexed = view.first_indexed(key);
            if indexed.is_some() {
                return Ok(indexed);
            }
            view.last_miss = Some(key);
        }
        let first_new = unexpected.first_since(view.indexed_upto);
        match unexpected.find_near(first_new, LINEAR_LIMIT, |message| {
            message.is_taken_by(src, tag)
        }) {
            Ok(slot) => Ok(slot),
            Err(LimitReached) => {
                view.index_new(unexpected, first_new);
                Ok(view.first_indexed(key))
            }
        }
    }

    /// Removes the message with this number from every index that contains it.
    pub(super) fn remove(&mut self, env: &Envelope, number: u64, slot: Slot) {
        for view in self.0.iter_mut().filter(|view| number < view.indexed_upto) {
            examine();
            let key = view.key(env);
            view.index.remove(key, slot);
        }
    }

    /// The view for this mask and directedness: the existing one, a new one, or one that has become
    /// empty.
    fn choose(&mut self, is_directed: bool, ignore: u64) -> Result<&mut View, NoView> {
        let views = &mut self.0;
        let is_match = |view: &View| (view.ignore, view.is_directed) == (ignore, is_directed);
        if let Some(index) = views.iter().position(is_match) {
            return Ok(&mut views[index]);
        }
        let view = View {
            ignore,
            is_directed,
            index: Index::default(),
            indexed_upto: 0,
            last_miss: None,
        };
        if views.len() < MASKS {
            return Ok(views.push_mut(view));
        }
        let empty = views.iter_mut().find(|view| view.index.is_empty());
        let reused = empty.ok_or(NoView)?;
        *reused = view;
        Ok(reused)
    }
}

/// An index of the unexpected messages for receives of one mask, directed or not.
#[derive(Debug)]
struct View {
    ignore: u64,
    is_directed: bool,
    index: Index,
    /// Messages with a lower number are indexed.
    indexed_upto: u64,
    /// The last key that no indexed message has.
    last_miss: Option<Key>,
}

impl View {
    /// The message with this key that arrived first among the indexed ones.
    fn first_indexed(&self, key: Key) -> Option<Slot> {
        examine();
        let slot = self.index.first(key);
        (slot != NONE).then_some(slot)
    }

    /// Indexes the messages from `first_new` on, which arrived since the last call.
    fn index_new<U>(&mut self, unexpected: &Queue<Unexpected<U>>, first_new: Slot) {
        for (slot, message) in unexpected.iter_from(first_new) {
            examine();
            self.index.add(self.key(&message.env), slot);
        }
        self.indexed_upto = unexpected.pushes();
        self.last_miss = None;
    }

    const fn key(&self, env: &Envelope) -> Key {
        let src = if self.is_directed {
            env.src
        } else {
            Source::ANY
        };
        Key::new(src, env.tag, self.ignore)
    }
}
