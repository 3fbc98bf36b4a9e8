//! What discovery has answered, kept where nothing changes it.
//!
//! The fields of an [`Info`] are public, and the library believes what it is opened with: a larger
//! inject would overrun its buffers, a duty of registration that is left out would have it use memory
//! that it does not know. So an `Info` that says more than any answer did is refused, by the field.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use selvedge::info::{EpType, Threading};
use selvedge::{AddrFormat, Errno, Error, Info, Mode, MrMode};

use crate::names;

/// The answers of a library, each once.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<Vec<Answer>>);

/// What the library's memory safety depends on, of one answer.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    whose: Whose,
    mode: Mode,
    mr_mode: MrMode,
    /// By the field: no more than these.
    most: [(&'static str, usize); 5],
}

/// Which endpoints an answer is about.
#[derive(Clone, Debug, PartialEq)]
struct Whose {
    provider: String,
    fabric: String,
    domain: String,
    ep_type: EpType,
    addr_format: AddrFormat,
}

/// Duties that a program does when it posts.
const DUTIES: Mode = Mode::MSG_PREFIX;

impl Answer {
    fn of(info: &Info) -> Self {
        let (tx, rx) = (&info.tx_attr, &info.rx_attr);
        Self {
            whose: Whose {
                provider: names::core(&info.fabric_attr.prov_name),
                fabric: info.fabric_attr.name.clone(),
                domain: info.domain_attr.name.clone(),
                ep_type: info.ep_attr.ep_type,
                addr_format: info.addr_format,
            },
            mode: info.mode & DUTIES,
            mr_mode: info.domain_attr.mr_mode,
            most: [
                ("tx_attr.inject_size", tx.inject_size),
                ("tx_attr.iov_limit", tx.iov_limit),
                ("tx_attr.rma_iov_limit", tx.rma_iov_limit),
                ("rx_attr.iov_limit", rx.iov_limit),
                ("ep_attr.max_msg_size", info.ep_attr.max_msg_size),
            ],
        }
    }

    /// Whether an `Info` for the same endpoints says no more than this.
    ///
    /// # Errors
    /// [`Errno::Inval`] with the first field that does.
    fn allows(&self, asked: &Self) -> Result<(), Error> {
        for (&(field, has), (_, asked)) in self.most.iter().zip(asked.most) {
            if asked > has {
                return Err(changed(field, has, asked));
            }
        }
        if !asked.mr_mode.contains(self.mr_mode) {
            return Err(changed("domain_attr.mr_mode", self.mr_mode, asked.mr_mode));
        }
        match asked.mode.contains(self.mode) {
            true => Ok(()),
            false => Err(changed("mode", self.mode, asked.mode)),
        }
    }
}

fn changed(field: &str, has: impl fmt::Debug, asked: impl fmt::Debug) -> Error {
    let what = format!(
        "{field} of the Info is {asked:?}, and discovery has answered {has:?}: leave it, or ask for it \
         in the hints"
    );
    Error::new(Errno::Inval, what)
}

impl Answers {
    /// Keeps an answer.
    pub(crate) fn add(&self, info: &Info) {
        let answer = Answer::of(info);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&answer) {
            all.push(answer);
        }
    }

    /// Makes sure that an `Info` says no more than an answer for the same endpoints.
    ///
    /// # Errors
    /// [`Errno::Inval`] with the field, or with the names where no answer was about such endpoints.
    pub(crate) fn check(&self, info: &Info) -> Result<(), Error> {
        let asked = Answer::of(info);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = all.iter().filter(|answer| answer.whose == asked.whose);
        let mut refusal = None;
        for answer in same {
            match answer.allows(&asked) {
                Ok(()) => return Ok(()),
                Err(error) => refusal = Some(error),
            }
        }
        Err(refusal.unwrap_or_else(|| {
            let whose = &asked.whose;
            let what = format!("no discovery of this process has answered with {whose:?}");
            Error::new(Errno::Inval, what)
        }))
    }
}

/// What the library is told of threads: what the `Info` says, if that asks for more locks than the
/// promise, and otherwise the promise.
pub(crate) fn threading(info: &Info) -> Threading {
    let promised = info.threading_promise();
    let said = info.domain_attr.threading;
    match rank(said) < rank(promised) {
        true => said,
        false => promised,
    }
}

/// Fewer locks come later, as libfabric orders them.
fn rank(threading: Threading) -> u32 {
    match threading {
        Threading::Safe => 1,
        Threading::Fid => 2,
        Threading::Endpoint => 3,
        Threading::Completion => 4,
        Threading::Domain => 5,
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use selvedge::Hints;

    use super::*;

    /// A change of an `Info`.
    type Edit = fn(&mut Info);

    fn answered() -> Info {
        let hints = Hints::new().edit(|info| {
            info.fabric_attr.prov_name = "tcp;ofi".into();
            info.tx_attr.inject_size = 64;
            (info.tx_attr.iov_limit, info.tx_attr.rma_iov_limit) = (4, 4);
            info.rx_attr.iov_limit = 4;
            info.ep_attr.max_msg_size = 1000;
            info.domain_attr.mr_mode = MrMode::LOCAL;
            info.mode = Mode::MSG_PREFIX;
        });
        hints.info().clone()
    }

    #[test]
    fn an_info_that_says_more_than_discovery_did_is_refused_by_its_field() {
        let answers = Answers::default();
        answers.add(&answered());
        answers.check(&answered()).unwrap();
        let edits: &[(&str, Edit)] = &[
            ("tx_attr.inject_size", |info| info.tx_attr.inject_size = 65),
            ("tx_attr.iov_limit", |info| info.tx_attr.iov_limit = 5),
            ("tx_attr.rma_iov_limit", |info| {
                info.tx_attr.rma_iov_limit = 5
            }),
            ("rx_attr.iov_limit", |info| info.rx_attr.iov_limit = 5),
            ("ep_attr.max_msg_size", |info| {
                info.ep_attr.max_msg_size = 1001
            }),
            ("domain_attr.mr_mode", |info| {
                info.domain_attr.mr_mode = MrMode::empty()
            }),
            ("mode", |info| info.mode = Mode::empty()),
            ("addr_format", |info| info.addr_format = AddrFormat::Str),
        ];
        for &(field, edit) in edits {
            let mut info = answered();
            edit(&mut info);
            let error = answers.check(&info).unwrap_err();
            assert_eq!(error.errno(), Errno::Inval);
            assert!(error.message().contains(field), "{field}: {error}");
        }
        let mut less = answered();
        (less.tx_attr.inject_size, less.tx_attr.iov_limit) = (8, 1);
        less.domain_attr.mr_mode |= MrMode::VIRT_ADDR;
        answers.check(&less).unwrap();
    }

    #[test]
    fn what_one_answer_refuses_another_may_allow() {
        let answers = Answers::default();
        answers.add(&answered());
        let mut larger = answered();
        larger.tx_attr.inject_size = 4096;
        answers.check(&larger).unwrap_err();
        answers.add(&larger);
        answers.add(&larger);
        answers.check(&larger).unwrap();
        assert_eq!(answers.0.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_field_takes_no_lock_of_the_library_away() {
        let mut info = answered();
        for (said, told) in [
            (Threading::Domain, Threading::Safe),
            (Threading::Unspec, Threading::Safe),
            (Threading::Safe, Threading::Safe),
        ] {
            info.domain_attr.threading = said;
            assert_eq!(threading(&info), told, "{said}");
        }
        #[expect(unsafe_code, reason = "the promise about threads")]
        // SAFETY: nothing is opened from these hints.
        let hints = unsafe { Hints::new().promise_threading(Threading::Domain) };
        let mut info = hints.info().clone();
        assert_eq!(threading(&info), Threading::Domain);
        info.domain_attr.threading = Threading::Safe;
        assert_eq!(threading(&info), Threading::Safe);
    }
}
