//! Registered functions and handlers, and the comparison between contexts at the first barrier.

use super::state::Engine;
use crate::net::wire::{CHANNELS, WireMessage};
use crate::{Error, Result};

impl Engine {
    /// Registers a function under the next number.
    pub(crate) fn add_function(&mut self, name: &str) -> u32 {
        self.registered.names.push(format!("function {name}"));
        self.registered.functions += 1;
        self.registered.functions - 1
    }

    /// Registers a handler under the next number.
    ///
    /// # Errors
    /// When [`CHANNELS`] handlers exist.
    pub(crate) fn add_channel(&mut self, name: &str) -> Result<u32> {
        if self.registered.channels == CHANNELS {
            return Err(Error::Garbled(format!("more than {CHANNELS} handlers")));
        }
        self.registered.names.push(format!("handler {name}"));
        self.registered.channels += 1;
        Ok(self.registered.channels - 1)
    }

    /// Number of handlers.
    pub(crate) fn channels(&self) -> u32 {
        self.registered.channels
    }

    /// Number of functions.
    pub(crate) fn functions(&self) -> u32 {
        self.registered.functions
    }

    /// Freezes the names that the first barrier compares.
    pub(super) fn freeze_registered(&mut self) {
        let registered = &mut self.registered;
        registered.first_barrier = Some((registered.names.len(), registered.compute_digest()));
    }

    /// Compares with contexts whose barrier messages arrived early.
    pub(super) fn compare_registered(&mut self) {
        for (from, round, digest) in std::mem::take(&mut self.registered.early_messages) {
            self.on_barrier(from, round, 1, digest);
        }
        for (from, names) in std::mem::take(&mut self.registered.early_names) {
            self.on_names(from, names.as_bytes());
        }
    }

    /// Returns whether a message of the first barrier is accepted. The message is deferred until
    /// this context has entered, and rejected if the sender has registered other names.
    pub(super) fn accepts_barrier(&mut self, from: usize, round: u32, digest: u64) -> bool {
        if self.registered.first_barrier.is_none() {
            self.registered.early_messages.push((from, round, digest));
            return false;
        }
        if digest == self.registered.digest() {
            return true;
        }
        let names = self.registered.compared_names().join("\n");
        let len = names.len().min(self.nets[self.peers[from].net].eager());
        self.send(from, &WireMessage::Names, &names.as_bytes()[..len]);
        false
    }

    /// Handles the names of a context with other registrations.
    #[cold]
    pub(super) fn on_names(&mut self, from: usize, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        if self.registered.first_barrier.is_none() {
            return self.registered.early_names.push((from, text));
        }
        let remote: Vec<_> = text.lines().collect();
        let text = difference(self.rank, self.registered.compared_names(), from, &remote);
        let text = text.unwrap_or_else(|| {
            format!(
                "contexts {} and {from} differ in names beyond the length limit",
                self.rank
            )
        });
        self.break_all(Error::Mismatch(text));
    }
}

/// Describes the first difference, the lower context first.
fn difference(rank: usize, local: &[String], other: usize, remote: &[&str]) -> Option<String> {
    let quoted =
        |name: Option<&str>| name.map_or_else(|| "nothing".to_owned(), |name| format!("{name:?}"));
    let count = local.len().max(remote.len());
    (0..count).find_map(|position| {
        let (local_name, remote_name) = (
            local.get(position).map(String::as_str),
            remote.get(position).copied(),
        );
        let mut sides = [(rank, local_name), (other, remote_name)];
        sides.sort_unstable_by_key(|side| side.0);
        let [(low, first), (high, second)] = sides;
        (local_name != remote_name).then(|| {
            format!(
                "as number {position}, context {low} has {} and context {high} has {}",
                quoted(first),
                quoted(second)
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_both_contexts_and_the_position() {
        let local = ["function a", "function b"].map(str::to_owned);
        let table: [(&[&str], Option<&str>); 3] = [
            (&["function a", "function b"], None),
            (
                &["function a", "function c"],
                Some("as number 1, context 0 has \"function c\" and context 2 has \"function b\""),
            ),
            (
                &["function a"],
                Some("as number 1, context 0 has nothing and context 2 has \"function b\""),
            ),
        ];
        for (remote, expected) in table {
            assert_eq!(difference(2, &local, 0, remote).as_deref(), expected);
        }
    }
}
