//! What a provider answers to a query: an [`Info`], or the attribute that refused.

use std::fmt;

use super::Info;

/// One way to communicate that a provider provided: taken, and fitted to the query, or refused.
pub type Candidate = Result<Info, Mismatch>;

/// The attribute in which a query and an offer differ.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The attribute: `ep_type`, `tx_attr.size`.
    pub field: &'static str,
    /// What the application requested for.
    pub requested: String,
    /// What the provider provided.
    pub provided: String,
    /// The provider's own description of what it offers, where it came to that.
    pub candidate: Option<Box<Info>>,
}

impl Mismatch {
    /// Names the attribute and both values.
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

    /// Says which offer was refused.
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
        write!(f, "{field}: requested for {requested}, provided {provided}")
    }
}

impl std::error::Error for Mismatch {}
