//! `Registered`: the names of registered functions and handlers.

/// The functions and handlers of this context.
#[derive(Debug, Default)]
pub(crate) struct Registered {
    pub(crate) names: Vec<String>,
    pub(crate) functions: u32,
    pub(crate) channels: u32,
    /// Barrier messages and digests that arrived before this context's first barrier.
    pub(crate) early_messages: Vec<(usize, u32, u64)>,
    pub(crate) early_names: Vec<(usize, String)>,
    /// Number of names at the first barrier, and their digest.
    pub(crate) first_barrier: Option<(usize, u64)>,
}

impl Registered {
    pub(crate) fn functions(&self) -> u32 {
        self.functions
    }

    /// Digest of the names at the first barrier, equal in every process with the same names.
    pub(crate) fn digest(&self) -> u64 {
        self.first_barrier.map_or(0, |(_, digest)| digest)
    }

    pub(crate) fn compared_names(&self) -> &[String] {
        let count = self
            .first_barrier
            .map_or(self.names.len(), |(count, _)| count);
        &self.names[..count]
    }

    /// Computes FNV-1a over all names.
    pub(crate) fn compute_digest(&self) -> u64 {
        let bytes = self.names.iter().flat_map(|name| name.bytes().chain([0]));
        bytes.fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    }
}
