//! The unexpected messages by source and tag, once per way in which receives ask for them.

use selvedge::TagMatch;

use super::index::{Index, Key};
use super::matcher::Unexpected;
use super::queue::{NONE, Queue, Slot, TooMany};
use super::{Envelope, MASKS, SHORT, Source, examine};

/// One index for each pair of ignore mask and directedness that was asked for.
#[derive(Debug, Default)]
pub(super) struct Views(Vec<View>);

/// Every index is in use for another pair.
#[derive(Debug)]
pub(super) struct NoView;

impl Views {
    /// The message that arrived first of those that such a receive takes.
    pub(super) fn first<U>(
        &mut self,
        unexpected: &Queue<Unexpected<U>>,
        src: Source,
        tag: TagMatch,
    ) -> Result<Option<Slot>, NoView> {
        let view = self.choose(src != Source::ANY, tag.ignore)?;
        let key = Key::new(src, tag.tag, tag.ignore);
        if view.missed != Some(key) {
            let indexed = view.first_indexed(key);
            if indexed.is_some() {
                return Ok(indexed);
            }
            view.missed = Some(key);
        }
        let newer = unexpected.first_since(view.upto);
        match unexpected.find_near(newer, SHORT, |message| message.is_taken_by(src, tag)) {
            Ok(slot) => Ok(slot),
            Err(TooMany) => {
                view.catch_up(unexpected, newer);
                Ok(view.first_indexed(key))
            }
        }
    }

    /// Removes the message with this number from every index that it is in.
    pub(super) fn forget(&mut self, env: &Envelope, number: u64, slot: Slot) {
        for view in self.0.iter_mut().filter(|view| number < view.upto) {
            examine();
            let key = view.key(env);
            view.index.remove(key, slot);
        }
    }

    /// The view for such a receive: its own, a new one, or one that has become empty.
    fn choose(&mut self, directed: bool, ignore: u64) -> Result<&mut View, NoView> {
        let views = &mut self.0;
        let own = |view: &View| (view.ignore, view.directed) == (ignore, directed);
        if let Some(own) = views.iter().position(own) {
            return Ok(&mut views[own]);
        }
        let view = View {
            ignore,
            directed,
            index: Index::default(),
            upto: 0,
            missed: None,
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
    directed: bool,
    index: Index,
    /// Messages with a lower number are indexed.
    upto: u64,
    /// A key that none of the indexed messages has.
    missed: Option<Key>,
}

impl View {
    /// The message with this key that arrived first, among those added.
    fn first_indexed(&self, key: Key) -> Option<Slot> {
        examine();
        let slot = self.index.first(key);
        (slot != NONE).then_some(slot)
    }

    /// Adds the messages from `newer` on, which arrived since the last time.
    fn catch_up<U>(&mut self, unexpected: &Queue<Unexpected<U>>, newer: Slot) {
        for (slot, message) in unexpected.iter_from(newer) {
            examine();
            self.index.add(self.key(&message.env), slot);
        }
        self.upto = unexpected.pushes();
        self.missed = None;
    }

    const fn key(&self, env: &Envelope) -> Key {
        let src = if self.directed { env.src } else { Source::ANY };
        Key::new(src, env.tag, self.ignore)
    }
}
