//! The copy that a reader makes of a page of any kind: its consistency, its header and its texts.

use super::layout::{
    AT_MAGIC, AT_NAME, AT_OPENED, AT_PID, AT_PROVIDER, AT_VERSION, NAME_WORDS, PROVIDER_WORDS,
    PageKind, VERSION,
};
use super::seqlock::{self, Words};

/// The header of a page, which identifies the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageHeader {
    /// The process ID.
    pub pid: u32,
    /// The provider's name.
    pub provider: String,
    /// The endpoint's name.
    pub name: String,
    /// The time at which the endpoint was opened, in nanoseconds of the system's monotonic clock.
    pub opened: u64,
}

impl PageHeader {
    /// Reads the header of a page. `None` for a page of another kind or version.
    pub(super) fn parse(kind: PageKind, words: &[u64]) -> Option<Self> {
        if words[AT_MAGIC] != kind.magic() || words[AT_VERSION] != VERSION {
            return None;
        }
        Some(Self {
            pid: u32::try_from(words[AT_PID]).ok()?,
            provider: read_text(&words[AT_PROVIDER..AT_PROVIDER + PROVIDER_WORDS]),
            name: read_text(&words[AT_NAME..AT_NAME + NAME_WORDS]),
            opened: words[AT_OPENED],
        })
    }
}

/// The largest number of copies that a reader makes of a page while the writer changes the page.
const MAX_COPIES: usize = 64;

/// Copies the words that the sequence lock at `seq` protects. The flag tells whether the copy is
/// consistent: the writer may have stopped or died during a write.
pub(super) fn copy_consistent<W: Words + ?Sized, const N: usize>(
    page: &W,
    seq: usize,
    mut copy: impl FnMut() -> Option<Box<[u64; N]>>,
) -> Option<(Box<[u64; N]>, bool)> {
    for _ in 0..MAX_COPIES {
        let Some(number) = seqlock::begin_read(page, seq) else {
            std::thread::yield_now();
            continue;
        };
        let words = copy()?;
        if seqlock::validate_read(page, seq, number) {
            return Some((words, true));
        }
    }
    Some((copy()?, false))
}

/// The text in some words, without control characters, which a terminal would interpret.
pub(super) fn read_text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = bytes.iter().position(|&byte| byte == 0);
    let text = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);
    text.chars().filter(|char| !char.is_control()).collect()
}
