//! Connection management of endpoints.

#![expect(unsafe_code, reason = "calls of another library")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "explained at `call!`")]

use selvedge::{Address, ConnectionManagement, Errno, Result};
use selvedge_abi::addr;

use super::Endpoint;
use crate::object::{call, read_address, to_result};

impl ConnectionManagement for Endpoint {
    fn connect(&self, dest: &Address, data: &[u8]) -> Result {
        if !self.addr_format().accepts(dest.format()) {
            return Err(Errno::Inval);
        }
        let ep = self.ptr()?;
        let dest = addr::encode(dest);
        let (dest, data_ptr, len) = (dest.as_ptr().cast(), data.as_ptr().cast(), data.len());
        // SAFETY: the endpoint is open; address and data live during the call.
        to_result(unsafe { call!(ep, (*ep).cm, connect, dest, data_ptr, len) })
    }

    fn accept(&self, data: &[u8]) -> Result {
        let ep = self.ptr()?;
        let (data_ptr, len) = (data.as_ptr().cast(), data.len());
        // SAFETY: the endpoint is open, and the data lives during the call.
        to_result(unsafe { call!(ep, (*ep).cm, accept, data_ptr, len) })
    }

    fn shutdown(&self) -> Result {
        let ep = self.ptr()?;
        // SAFETY: the endpoint is open.
        to_result(unsafe { call!(ep, (*ep).cm, shutdown, 0) })
    }

    fn peer(&self) -> Result<Address> {
        let ep = self.ptr()?;
        read_address(self.addr_format(), |out_ptr, len| {
            // SAFETY: the endpoint is open, and there is room for as many bytes.
            unsafe { call!(ep, (*ep).cm, getpeer, out_ptr, len) }
        })
    }
}
