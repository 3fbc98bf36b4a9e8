//! `Accounts`: what happened to each request, and whether it is allowed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};

use super::journal::{Note, Request, Step};

/// The totals of a journal without violations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Accounts {
    /// Requests that clients have sent.
    pub(super) requests: u64,
    /// Requests with a response.
    pub(super) responses: u64,
    /// Requests with an error.
    pub(super) failures: u64,
}

/// The steps of one request.
#[derive(Debug, Default)]
struct Account {
    is_sent: bool,
    handled_by: Option<u64>,
    is_finished: bool,
}

impl Accounts {
    /// Checks the notes of ended processes. `killed` are the clients that were killed.
    ///
    /// # Errors
    /// The first request that was handled twice, by another server than the one whose response the
    /// client has, or without having been sent; or that has no result or two.
    pub(super) fn check(notes: &[Note], killed: &BTreeSet<u32>) -> anyhow::Result<Self> {
        let mut accounts: BTreeMap<Request, Account> = BTreeMap::new();
        let mut totals = Self::default();
        for &Note { step, request } in notes {
            let account = accounts.entry(request).or_default();
            match step {
                Step::Sent => {
                    ensure!(!account.is_sent, "{request:?} was sent twice");
                    account.is_sent = true;
                    totals.requests += 1;
                    continue;
                }
                Step::Handled(server) => {
                    ensure!(account.is_sent, "{request:?} was handled and not sent");
                    if let Some(earlier) = account.handled_by.replace(server) {
                        bail!("{request:?} was handled twice, by servers {earlier} and {server}");
                    }
                    continue;
                }
                Step::Responded(server) => {
                    ensure!(
                        account.handled_by == Some(server),
                        "{request:?} has a response of server {server} and was handled by {:?}",
                        account.handled_by
                    );
                    totals.responses += 1;
                }
                Step::Failed => totals.failures += 1,
            }
            ensure!(!account.is_finished, "{request:?} has two results");
            account.is_finished = true;
        }
        let lost = accounts
            .iter()
            .find(|(request, account)| !account.is_finished && !killed.contains(&request.client()));
        match lost {
            Some((request, _)) => bail!("{request:?} has neither a response nor an error"),
            None => Ok(totals),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Request = Request::new(1, 0);
    const OTHER: Request = Request::new(2, 0);

    fn check(notes: &[(Step, Request)]) -> anyhow::Result<Accounts> {
        let note = |&(step, request)| Note { step, request };
        let notes: Vec<_> = notes.iter().map(note).collect();
        Accounts::check(&notes, &BTreeSet::from([2]))
    }

    #[test]
    fn requests_with_one_result_each_are_counted() {
        let notes = [
            (Step::Sent, FIRST),
            (Step::Sent, OTHER),
            (Step::Handled(1), FIRST),
            (Step::Handled(1), OTHER),
            (Step::Responded(1), FIRST),
            (Step::Sent, Request::new(1, 1)),
            (Step::Failed, Request::new(1, 1)),
        ];
        let expected = Accounts {
            requests: 3,
            responses: 1,
            failures: 1,
        };
        assert_eq!(check(&notes).unwrap(), expected, "client 2 was killed");
    }

    #[test]
    fn each_violation_is_found() {
        let sent = (Step::Sent, FIRST);
        let handled = (Step::Handled(1), FIRST);
        let responded = (Step::Responded(1), FIRST);
        let violations: [(&[_], &str); 7] = [
            (&[sent, handled, (Step::Handled(2), FIRST)], "handled twice"),
            (&[handled], "not sent"),
            (&[sent, responded], "handled by None"),
            (&[sent, handled, (Step::Responded(2), FIRST)], "of server 2"),
            (&[sent, handled, responded, responded], "two results"),
            (
                &[sent, handled, responded, (Step::Failed, FIRST)],
                "two results",
            ),
            (&[sent, handled], "neither a response nor an error"),
        ];
        for (notes, text) in violations {
            let error = check(notes).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}
