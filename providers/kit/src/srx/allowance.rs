//! How much memory unexpected messages may take, with a share for each sender.

/// Bytes of the messages that wait for their receives, and how many there may be.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    bytes: usize,
    limit: usize,
}

impl Allowance {
    /// Nothing waits yet; `limit` bytes may.
    pub const fn new(limit: usize) -> Self {
        Self { bytes: 0, limit }
    }

    /// Bytes that wait, as they are counted here.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many there may be.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Whether `len` more bytes of a peer may wait for their receive. `kept` is what it has waiting,
    /// and `others` is how many peers there are besides.
    ///
    /// What is kept back for the others they can have even if one peer has flooded all the rest; one
    /// message of each may always wait.
    pub fn has_room(&self, len: usize, kept: usize, others: usize) -> bool {
        let share = (self.limit / 2 / (others + 1)).min(SHARE);
        let open = self.limit - share * others;
        kept == 0
            || kept.saturating_add(cost(len)) <= share
            || self.bytes.saturating_add(cost(len)) <= open
    }

    /// A message of `len` bytes waits from now on; `kept` is what its sender has waiting.
    pub fn keep(&mut self, len: usize, kept: &mut usize) {
        *kept += cost(len);
        self.bytes += cost(len);
    }

    /// A message of `len` bytes waits no longer.
    pub fn free(&mut self, len: usize, kept: &mut usize) {
        *kept -= cost(len);
        self.bytes -= cost(len);
    }
}

/// Memory of unexpected messages that every peer can have, in bytes, unless the limit is too small
/// for that: some hundreds of small messages.
const SHARE: usize = 64 << 10;

/// What an unexpected message of `len` bytes counts for: an empty one takes memory too.
const fn cost(len: usize) -> usize {
    const ENTRY: usize = 128;
    len.saturating_add(ENTRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_floods_leaves_the_others_their_share_and_everybody_one_message() {
        let mut allowance = Allowance::new(1 << 20);
        let (mut flood, mut quiet) = (0, 0);
        while allowance.has_room(1000, flood, 3) {
            allowance.keep(1000, &mut flood);
        }
        assert!(flood > 500_000, "{flood}");
        assert!(allowance.has_room(usize::MAX, 0, 3));
        while allowance.has_room(1000, quiet, 3) {
            allowance.keep(1000, &mut quiet);
        }
        assert!(quiet > SHARE - 2000, "{quiet}");
        allowance.free(1000, &mut flood);
        assert!(!allowance.has_room(1000, quiet, 3));
    }
}
