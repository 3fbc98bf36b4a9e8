//! `Candidate`: a provider's description, checked against a query.

use std::fmt;

use super::Info;

/// A provider's description after the check against a query: the adjusted description, or the
/// attribute that does not match.
pub type Candidate = Result<Info, Mismatch>;

/// An attribute in which a query and a candidate differ.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The name of the attribute, such as `ep_type` or `tx_attr.size`.
    pub field: &'static str,
    /// The requested value.
    pub requested: String,
    /// The value that the provider has.
    pub provided: String,
    /// The provider's description, if there is one.
    pub candidate: Option<Box<Info>>,
}

impl Mismatch {
    /// Creates a mismatch in `field`, with both values.
    pub fn new(
        field: &'static str,
        requested: impl fmt::Display,
        provided: impl fmt::Display,
    ) -> Self {
        Self {
            field,
            requested: requested.to_string(),
            provided: provided.to_string(),
            candidate: None,
        }
    }

    /// Sets the rejected description.
    #[must_use]
    pub fn of(mut self, candidate: &Info) -> Self {
        self.candidate = Some(Box::new(candidate.clone()));
        self
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            requested,
            provided,
            ..
        } = self;
        write!(f, "{field}: requested {requested}, has {provided}")
    }
}

impl std::error::Error for Mismatch {}
