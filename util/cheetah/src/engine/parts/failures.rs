//! Failures of a context's operations, kept until a call takes them.

use std::collections::VecDeque;

use crate::Error;

/// The failures of one context, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Failures(VecDeque<Failure>);

#[derive(Debug)]
struct Failure {
    error: Error,
    /// Whether a wait has returned this error. A poll returns it, too; barrier and finalize do not.
    is_reported: bool,
}

impl Failures {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, error: Error) {
        self.0.push_back(Failure {
            error,
            is_reported: false,
        });
    }

    /// Takes the oldest failure, for a poll.
    pub(crate) fn pop(&mut self) -> Option<Error> {
        self.0.pop_front().map(|failure| failure.error)
    }

    /// Takes the oldest failure that no wait has returned.
    pub(crate) fn pop_unreported(&mut self) -> Option<Error> {
        let at = self.0.iter().position(|failure| !failure.is_reported)?;
        self.0.remove(at).map(|failure| failure.error)
    }

    /// Records that a wait has returned this error.
    pub(crate) fn mark_reported(&mut self, error: &Error) {
        let mut open = self.0.iter_mut().filter(|failure| !failure.is_reported);
        if let Some(failure) = open.find(|failure| failure.error == *error) {
            failure.is_reported = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_returned_by_a_wait_is_left_for_a_poll_alone() {
        let [first, second] = ["first", "second"].map(Error::usage);
        let mut failures = Failures::default();
        for error in [&first, &second, &first] {
            failures.push(error.clone());
        }
        failures.mark_reported(&first);
        assert_eq!(failures.pop_unreported(), Some(second));
        assert_eq!(failures.pop_unreported(), Some(first.clone()));
        assert_eq!(failures.pop_unreported(), None);
        assert_eq!(failures.pop(), Some(first));
        assert!(failures.is_empty());
    }
}
