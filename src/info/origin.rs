//! What an [`super::Info`] carries unseen: where it came from.

use std::sync::Arc;

use crate::Provider;
use crate::info::Threading;
use crate::param::Params;

/// Set by the registry. Two descriptions of the same way to communicate are equal wherever they
/// came from, but not under different promises.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) provider: Option<Arc<dyn Provider>>,
    pub(super) params: Params,
    pub(super) threading: Threading,
}

impl Default for Origin {
    fn default() -> Self {
        Self {
            provider: None,
            params: Params::default(),
            threading: Threading::Safe,
        }
    }
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        self.threading == other.threading
    }
}
