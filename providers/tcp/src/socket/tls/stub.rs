//! TLS in a build without the feature `tls`: uninhabited types, and an error when the parameters
//! require TLS.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::IpAddr;

use selvedge::param::Params;
use selvedge::{Errno, Error};

/// Uninhabited: this build has no TLS.
#[derive(Clone, Debug)]
pub(crate) struct Identity(Infallible);

/// Uninhabited: this build has no TLS.
#[derive(Debug)]
pub(crate) struct Session(Infallible);

/// Returns no identity.
///
/// # Errors
/// [`Errno::NoSys`] when the parameters require TLS.
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
    pub(crate) fn client_session(&self, _to: IpAddr) -> io::Result<Session> {
        match self.0 {}
    }

    pub(crate) fn server_session(&self) -> io::Result<Session> {
        match self.0 {}
    }
}

impl Session {
    pub(crate) fn continue_handshake(
        &mut self,
        _stream: &mut (impl Read + Write),
    ) -> io::Result<bool> {
        match self.0 {}
    }

    pub(crate) fn peer_certificate(&self) -> Option<(Vec<String>, Vec<u8>)> {
        match self.0 {}
    }

    pub(crate) fn send(
        &mut self,
        _stream: &mut (impl Read + Write),
        _len: usize,
        _copy: impl Fn(usize, &mut [u8]),
    ) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn recv(
        &mut self,
        _stream: &mut (impl Read + Write),
        _max: usize,
        _store: impl FnMut(usize, &[u8]),
    ) -> io::Result<usize> {
        match self.0 {}
    }

    pub(crate) fn has_input(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn has_output(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn send_close_notify(&mut self, _stream: &mut (impl Read + Write)) {
        match self.0 {}
    }

    pub(crate) fn flush(&mut self, _stream: &mut (impl Read + Write)) -> io::Result<bool> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requiring_tls_fails_in_a_build_without_it() {
        let identity_for = |value| {
            let params: Params = [("FI_TCP_TLS", value)].into_iter().collect();
            identity(&params.with(crate::config::PARAMS))
        };
        assert!(identity_for("off").unwrap().is_none());
        let error = identity_for("require").unwrap_err();
        assert!(error.to_string().contains("FI_TCP_TLS"), "{error}");
    }
}
