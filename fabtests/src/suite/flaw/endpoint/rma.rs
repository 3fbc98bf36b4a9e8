//! Access to remote memory with a defect.

#![expect(unsafe_code, reason = "an endpoint around an endpoint")]

use selvedge::rma::{ReadMsg, RmaIov, WriteMsg};
use selvedge::{FiAddr, Iov, OpFlags, Result, Rma};

use super::FlawedEndpoint;
use super::outgoing::{copied, flipped};
use crate::suite::flaw::Flaw;

impl Rma for FlawedEndpoint {
    unsafe fn readmsg(&self, msg: &ReadMsg<'_>, flags: OpFlags) -> Result {
        let (iov, rma_iov) = (self.pieces(msg.iov), self.places(msg.rma_iov));
        let msg = ReadMsg {
            iov: &iov,
            rma_iov: &rma_iov,
            ..*msg
        };
        // SAFETY: the caller's promise.
        unsafe { self.inner.readmsg(&msg, self.flags(flags)) }
    }

    unsafe fn writemsg(&self, msg: &WriteMsg<'_>, flags: OpFlags) -> Result {
        let (iov, rma_iov) = (self.pieces(msg.iov), self.places(msg.rma_iov));
        let mut msg = WriteMsg {
            iov: &iov,
            rma_iov: &rma_iov,
            ..*msg
        };
        let mut flags = self.flags(flags);
        // SAFETY: the caller's promise.
        let spoiled = [Iov::new(flipped(unsafe { copied(msg.iov) }))];
        match self.flaw {
            Flaw::NoRemoteData => flags -= OpFlags::REMOTE_CQ_DATA,
            Flaw::HalvesData => msg.data &= 0xffff_ffff,
            Flaw::FlipsBit => msg.iov = &spoiled,
            _ => {}
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.writemsg(&msg, flags) }
    }

    fn inject_write(
        &self,
        buf: &[u8],
        dest: FiAddr,
        addr: u64,
        key: u64,
        data: Option<u64>,
    ) -> Result {
        match self.flaw {
            Flaw::ForgetsInjects => Ok(()),
            Flaw::WrongAddress => self.inner.inject_write(buf, dest, addr + 1, key, data),
            Flaw::NoRemoteData => self.inner.inject_write(buf, dest, addr, key, None),
            _ => self.inner.inject_write(buf, dest, addr, key, data),
        }
    }
}

impl FlawedEndpoint {
    fn places(&self, places: &[RmaIov]) -> Vec<RmaIov> {
        let mut places = places.to_vec();
        if self.flaw == Flaw::WrongAddress {
            places.iter_mut().for_each(|place| place.addr += 1);
        }
        places
    }
}
