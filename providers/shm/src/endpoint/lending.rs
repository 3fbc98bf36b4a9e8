//! Lent messages of an endpoint.

use std::sync::Arc;

use selvedge::{Lending, LentMemory, Result};

use crate::endpoint::Endpoint;
use crate::matching::lent::memory::LentMessage;

impl Lending for Endpoint {
    fn take_lent(&self, number: usize) -> Result<Box<dyn LentMemory>> {
        let core = Arc::downgrade(self.shell.core());
        LentMessage::take(&mut *self.shell.lock()?, core, number)
    }
}
