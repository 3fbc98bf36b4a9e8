//! The flight recorder of an endpoint: a page with the endpoint's last calls and their outcomes.
//!
//! A record is a call, such as a post, or the completion of a post. Programs have no flight
//! recorder unless they request it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use selvedge::{Errno, Error};

use super::layout::{AT_CALL_COUNT, AT_CALLS, CALL_WORDS, CALLS, CALLS_WORDS, PageKind};
use super::page_copy::{PageHeader, read_text};
use super::shared_words::{SharedWords, now, write_text};

const AT_NUMBER: usize = 0;
const AT_TIME: usize = 1;
const AT_OUTCOME: usize = 2;
const AT_LEN: usize = 3;
const AT_TAG: usize = 4;
const AT_KEY: usize = 5;
const AT_CONTEXT: usize = 6;
/// The number of tries of a call, or the duration of a completed operation in nanoseconds.
const AT_DETAIL: usize = 7;
const NAME: std::ops::Range<usize> = 8..11;
const PEER: std::ops::Range<usize> = 11..CALL_WORDS;

/// The outcome of a call that has not returned.
const IN_PROGRESS: u64 = 0;
const DONE: u64 = 1;
/// The bit of a failure, above the error number.
const FAILED: u64 = 1 << 32;
/// The bit that distinguishes a completion from a call.
const COMPLETION: u64 = 1 << 33;

/// A call to record.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The function's name; its first 24 bytes are recorded.
    pub name: &'a str,
    /// The peer, or another object of the call; its last 40 bytes are recorded.
    pub peer: &'a str,
    /// The length in bytes, or in elements.
    pub len: usize,
    /// The tag, or the address in the peer's memory.
    pub tag: u64,
    /// The bits of the tag that matching ignores, or the key of the peer's memory.
    pub key: u64,
    /// The context that the completion returns.
    pub context: u64,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call has not returned.
    InProgress,
    /// Success.
    Done,
    /// An error.
    Failed(Errno),
}

/// Records the last calls of an endpoint. Any thread may record.
#[derive(Debug)]
pub struct CallRecorder {
    page: SharedWords<CALLS_WORDS>,
    /// The number of records so far. The holder of the lock is the only writer of the page.
    count: Mutex<u64>,
}

impl CallRecorder {
    /// Opens a recorder for the endpoint `name` of `provider`. If `FI_SIGHT_CRASH` or
    /// `FI_SIGHT_SIGNAL` is set, a crash or a signal writes the page to a file.
    ///
    /// # Errors
    /// As [`super::StatsPage::open`].
    pub fn open(provider: &str, name: &str) -> Result<Self, Error> {
        let page = SharedWords::open(PageKind::Calls, provider, now())?;
        page.set_name(name);
        let count = Mutex::new(0);
        Ok(Self { page, count })
    }

    /// Records the begin of a call, and returns the record's number for [`Self::end`]. If the last
    /// record is the same call and failed with [`Errno::Again`], the retry updates that record.
    pub fn begin(&self, call: &Call<'_>) -> u64 {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = count.checked_sub(1)
            && self.is_retry(last, call)
        {
            let words = self.words(last);
            set(
                words,
                AT_DETAIL,
                words[AT_DETAIL].load(Ordering::Relaxed) + 1,
            );
            set(words, AT_OUTCOME, IN_PROGRESS);
            return last;
        }
        let number = *count;
        self.write(number, call, (IN_PROGRESS, 1));
        *count += 1;
        number
    }

    /// Records the outcome of the call with this number, unless newer records have replaced it.
    pub fn end(&self, number: u64, outcome: Result<(), Errno>) {
        let _alone = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let words = self.words(number);
        // A later record may have taken the slot.
        if words[AT_NUMBER].load(Ordering::Relaxed) == number + 1 {
            set(words, AT_OUTCOME, outcome_word(outcome));
        }
    }

    /// Records that the application has read the completion of an operation, `took` nanoseconds
    /// after its post.
    pub fn complete(&self, call: &Call<'_>, took: u64, outcome: Result<(), Errno>) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(*count, call, (COMPLETION | outcome_word(outcome), took));
        *count += 1;
    }

    fn write(&self, number: u64, call: &Call<'_>, (outcome, detail): (u64, u64)) {
        let words = self.words(number);
        // The number 0 makes a concurrent reader, such as a signal handler, skip the slot.
        words[AT_NUMBER].store(0, Ordering::Release);
        set(words, AT_TIME, now());
        set(words, AT_OUTCOME, outcome);
        set(words, AT_LEN, call.len as u64);
        set(words, AT_TAG, call.tag);
        set(words, AT_KEY, call.key);
        set(words, AT_CONTEXT, call.context);
        set(words, AT_DETAIL, detail);
        write_text(&words[NAME], call.name);
        write_text(&words[PEER], suffix(call.peer));
        words[AT_NUMBER].store(number + 1, Ordering::Release);
        self.page.set(AT_CALL_COUNT, number + 1);
    }

    fn is_retry(&self, last: u64, call: &Call<'_>) -> bool {
        let words = self.words(last);
        let is = |at: usize, value: u64| words[at].load(Ordering::Relaxed) == value;
        is(AT_OUTCOME, outcome_word(Err(Errno::Again)))
            && is(AT_TAG, call.tag)
            && is(AT_LEN, call.len as u64)
            && is(AT_CONTEXT, call.context)
            && text_equals(&words[NAME], call.name)
            && text_equals(&words[PEER], suffix(call.peer))
    }

    fn words(&self, number: u64) -> &[AtomicU64] {
        let at = offset_of(number);
        &self.page.words()[at..at + CALL_WORDS]
    }
}

fn set(words: &[AtomicU64], at: usize, value: u64) {
    words[at].store(value, Ordering::Relaxed);
}

fn text_equals(words: &[AtomicU64], wanted: &str) -> bool {
    let words: Vec<u64> = words.iter().map(|it| it.load(Ordering::Relaxed)).collect();
    read_text(&words) == wanted
}

fn outcome_word(outcome: Result<(), Errno>) -> u64 {
    match outcome {
        Ok(()) => DONE,
        Err(errno) => FAILED | u64::from(errno.as_raw().unsigned_abs()),
    }
}

/// Returns the longest suffix of a name that fits in [`PEER`]. A suffix identifies a peer better
/// than a prefix.
fn suffix(name: &str) -> &str {
    let most = PEER.len() * 8;
    let first = name.len().saturating_sub(most);
    let first = (first..=name.len()).find(|&at| name.is_char_boundary(at));
    &name[first.unwrap_or(0)..]
}

const fn offset_of(number: u64) -> usize {
    AT_CALLS + (number % CALLS as u64) as usize * CALL_WORDS
}

/// A record as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallRecord {
    /// When the call began or its completion was read, in nanoseconds of the system's monotonic
    /// clock.
    pub at: u64,
    /// The function's name.
    pub name: String,
    /// The peer, or another object of the call.
    pub peer: String,
    /// The length in bytes, or in elements.
    pub len: u64,
    /// The tag, or the address in the peer's memory.
    pub tag: u64,
    /// The bits of the tag that matching ignores, or the key of the peer's memory.
    pub key: u64,
    /// The context that the completion returns.
    pub context: u64,
    /// Whether this is the call or its completion.
    pub kind: RecordKind,
    /// The outcome of the call or of the operation.
    pub outcome: Outcome,
}

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// The call, with its number of tries.
    Post(u64),
    /// The completion, with the nanoseconds since the post.
    Completion(u64),
}

/// The last calls of an endpoint as a reader sees them.
#[derive(Clone, Debug)]
pub struct CallLog {
    /// The header of the page.
    pub header: PageHeader,
    /// The number of records in all, replaced ones included.
    pub count: u64,
    /// The last records, at most [`CALLS`], oldest first.
    pub calls: Vec<CallRecord>,
}

impl CallLog {
    /// Parses a copy of a page. Returns `None` for a page of another kind or version. Omits records
    /// that the writer was changing during the copy.
    pub fn parse(words: &[u64; CALLS_WORDS]) -> Option<Self> {
        let header = PageHeader::parse(PageKind::Calls, words)?;
        let count = words[AT_CALL_COUNT];
        let numbers = count.saturating_sub(CALLS as u64)..count;
        let calls = numbers.filter_map(|number| call(words, number));
        Some(Self {
            header,
            count,
            calls: calls.take(CALLS).collect(),
        })
    }
}

fn call(words: &[u64; CALLS_WORDS], number: u64) -> Option<CallRecord> {
    let at = offset_of(number);
    let words = &words[at..at + CALL_WORDS];
    if words[AT_NUMBER] != number + 1 {
        return None;
    }
    Some(CallRecord {
        at: words[AT_TIME],
        name: read_text(&words[NAME]),
        peer: read_text(&words[PEER]),
        len: words[AT_LEN],
        tag: words[AT_TAG],
        key: words[AT_KEY],
        context: words[AT_CONTEXT],
        kind: match words[AT_OUTCOME] & COMPLETION {
            0 => RecordKind::Post(words[AT_DETAIL]),
            _ => RecordKind::Completion(words[AT_DETAIL]),
        },
        outcome: match words[AT_OUTCOME] & !COMPLETION {
            IN_PROGRESS => Outcome::InProgress,
            DONE => Outcome::Done,
            failed => Outcome::Failed(Errno::from_raw(failed as i32)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, len: usize) -> Call<'_> {
        let (tag, key, context, peer) = (7, 0, 3, "1235:0:0");
        Call {
            name,
            peer,
            len,
            tag,
            key,
            context,
        }
    }

    fn log_of(calls: &CallRecorder) -> CallLog {
        let words = calls.page.words().iter();
        let words: Vec<u64> = words.map(|it| it.load(Ordering::Relaxed)).collect();
        let words: Box<[u64; CALLS_WORDS]> = words.into_boxed_slice().try_into().unwrap();
        CallLog::parse(&words).unwrap()
    }

    #[test]
    fn a_reader_sees_the_last_calls_with_their_outcomes() {
        let calls = CallRecorder::open("test", "1234:0:0").unwrap();
        for len in 0..CALLS + 10 {
            let number = calls.begin(&call("tsend", len));
            calls.end(number, Ok(()));
        }
        let unfinished = calls.begin(&call("trecv", 0));
        let log = log_of(&calls);
        assert_eq!((log.count, log.calls.len()), (CALLS as u64 + 11, CALLS));
        assert_eq!(log.calls[0].len, 11);
        let last = log.calls.last().unwrap();
        assert_eq!(
            (&*last.name, &*last.peer, last.tag),
            ("trecv", "1235:0:0", 7)
        );
        assert_eq!(last.outcome, Outcome::InProgress);
        calls.end(unfinished, Err(Errno::NoMem));
        let outcome = log_of(&calls).calls.last().unwrap().outcome;
        assert_eq!(outcome, Outcome::Failed(Errno::NoMem));
    }

    #[test]
    fn retries_of_a_call_are_one_record() {
        let calls = CallRecorder::open("test", "1234:0:0").unwrap();
        for _ in 0..5 {
            let number = calls.begin(&call("tsend", 8));
            calls.end(number, Err(Errno::Again));
        }
        for other in [call("trecv", 8), call("tsend", 9)] {
            let number = calls.begin(&other);
            calls.end(number, Ok(()));
        }
        let records = log_of(&calls).calls;
        let found: Vec<_> = records
            .iter()
            .map(|it| (it.len, it.kind, it.outcome))
            .collect();
        let again = Outcome::Failed(Errno::Again);
        let (done, once) = (Outcome::Done, RecordKind::Post(1));
        let wanted = [
            (8, RecordKind::Post(5), again),
            (8, once, done),
            (9, once, done),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn the_outcome_of_a_call_whose_slot_was_reused_is_dropped() {
        let calls = CallRecorder::open("test", "1234:0:0").unwrap();
        let first = calls.begin(&call("trecv", 1));
        for len in 0..CALLS {
            calls.complete(&call("tsend", len), 5, Ok(()));
        }
        calls.end(first, Err(Errno::NoMem));
        let is_success =
            |it: &CallRecord| (it.kind, it.outcome) == (RecordKind::Completion(5), Outcome::Done);
        assert!(log_of(&calls).calls.iter().all(is_success));
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        let calls = CallRecorder::open("test", "1234:0:0").unwrap();
        let peer = format!("{}ä{}", "x".repeat(50), "y".repeat(39));
        let call = Call {
            peer: &peer,
            ..call("tsend", 1)
        };
        calls.complete(&call, 5, Ok(()));
        assert_eq!(log_of(&calls).calls[0].peer, "y".repeat(39));
    }
}
