//! What stands for TLS in a build without it: nothing, and an error for who asks for it.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::IpAddr;

use selvedge::param::Params;
use selvedge::{Errno, Error};

/// There is none.
#[derive(Clone, Debug)]
pub(crate) struct Identity(Infallible);

/// There is none.
#[derive(Debug)]
pub(crate) struct Session(Infallible);

/// No identity.
///
/// # Errors
/// [`Errno::NoSys`] when the parameters ask for one.
pub(crate) fn identity(params: &Params) -> Result<Option<Identity>, Error> {
    match &*params.text("FI_TCP_TLS")? {
        "require" => Err(Error::new(
            Errno::NoSys,
            "FI_TCP_TLS=\"require\": this build has no TLS (feature `tls`)",
        )),
        _ => Ok(None),
    }
}

impl Identity {
    pub(crate) fn call(&self, _to: IpAddr) -> io::Result<Session> {
        match self.0 {}
    }

    pub(crate) fn answer(&self) -> io::Result<Session> {
        match self.0 {}
    }
}

impl Session {
    pub(crate) fn shake(&mut self, _wire: &mut (impl Read + Write)) -> io::Result<bool> {
        match self.0 {}
    }

    pub(crate) fn send(
        &mut self,
        _wire: &mut (impl Read + Write),
        _len: usize,
        _copy: impl Fn(usize, &mut [u8]),
    ) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn recv(
        &mut self,
        _wire: &mut (impl Read + Write),
        _most: usize,
        _place: impl FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn is_loaded(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn is_behind(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn part(&mut self, _wire: &mut (impl Read + Write)) {
        match self.0 {}
    }

    pub(crate) fn push(&mut self, _wire: &mut (impl Read + Write)) -> io::Result<bool> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_tls_refuses_whoever_asks_for_it() {
        let asked = |word| {
            let params: Params = [("FI_TCP_TLS", word)].into_iter().collect();
            identity(&params.with(crate::config::PARAMS))
        };
        assert!(asked("off").unwrap().is_none());
        let error = asked("require").unwrap_err();
        assert!(error.to_string().contains("FI_TCP_TLS"), "{error}");
    }
}
