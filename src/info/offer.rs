//! What a provider answers to a query: an [`Info`], or the attribute that refused.

use std::fmt;

use super::Info;

/// One way to communicate that a provider has: taken, and fitted to the query, or refused.
pub type Offer = Result<Info, Mismatch>;

/// The attribute in which a query and an offer differ.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The attribute: `ep_type`, `tx_attr.size`.
    pub field: &'static str,
    /// What the application asked for.
    pub asked: String,
    /// What the provider has.
    pub has: String,
    /// The provider's own description of what it offers, where it came to that.
    pub offered: Option<Box<Info>>,
}

impl Mismatch {
    /// Names the attribute and both values.
    pub fn new(field: &'static str, asked: impl fmt::Display, has: impl fmt::Display) -> Self {
        Self {
            field,
            asked: asked.to_string(),
            has: has.to_string(),
            offered: None,
        }
    }

    /// Says which offer was refused.
    #[must_use]
    pub fn of(mut self, offered: &Info) -> Self {
        self.offered = Some(Box::new(offered.clone()));
        self
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field, asked, has, ..
        } = self;
        write!(f, "{field}: asked for {asked}, has {has}")
    }
}

impl std::error::Error for Mismatch {}
