//! The origin of an [`super::Info`]: its provider, parameters and threading promise.

use std::any::Any;
use std::sync::Arc;

use crate::info::Threading;
use crate::param::Params;

/// The origin of a description, which discovery sets. Comparisons regard only the threading
/// promise.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The provider, whose type only discovery knows: it takes descriptions as arguments.
    pub(super) provider: Option<Arc<dyn Any + Send + Sync>>,
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
