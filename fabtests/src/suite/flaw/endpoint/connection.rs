//! Connections with a defect.

use selvedge::{Address, ConnectionManagement, Errno, Result};

use super::FlawedEndpoint;
use crate::suite::flaw::Flaw;

impl ConnectionManagement for FlawedEndpoint {
    fn connect(&self, addr: &Address, data: &[u8]) -> Result {
        self.managed()?.connect(addr, data)
    }

    fn accept(&self, data: &[u8]) -> Result {
        self.managed()?.accept(data)
    }

    fn shutdown(&self) -> Result {
        match self.flaw {
            Flaw::NeverShutsDown => Ok(()),
            _ => self.managed()?.shutdown(),
        }
    }

    fn peer(&self) -> Result<Address> {
        self.managed()?.peer()
    }
}

impl FlawedEndpoint {
    fn managed(&self) -> Result<&dyn ConnectionManagement> {
        self.inner.cm().ok_or(Errno::NoSys)
    }
}
