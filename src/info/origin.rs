//! The origin of an [`super::Info`]: its provider, parameters and threading promise.

use std::sync::Arc;

use crate::Provider;
use crate::info::Threading;
use crate::param::Params;

/// The origin of a description, which the registry sets. Comparisons regard only the threading
/// promise.
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
