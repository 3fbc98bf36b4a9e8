//! `Options`: limits and times of listeners and connections.

#[cfg(feature = "tls")]
use std::path::Path;
use std::time::Duration;

use selvedge::param::Params;

use crate::wire::Limits;

/// The number of messages that a receiver keeps for its application by default.
const WINDOW: u16 = 64;
/// The memory of announced messages that a receiver keeps for its application by default, in bytes.
const WINDOW_LEN: usize = 8 << 20;
const MAX_MESSAGE: usize = 64 << 20;

/// Limits and times of a listener or a connection. The defaults suit most programs.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use selvedge_service::Options;
///
/// let options = Options::new()
///     .max_message(1 << 30)
///     .connect_timeout(Duration::from_secs(1));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(crate) limits: Limits,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Option<Duration>,
    pub(crate) spin: Duration,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) version: u32,
    /// Whether publications may be lent, which any thread gives back.
    pub(crate) lends: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            limits: Limits {
                messages: WINDOW,
                blocks: blocks(WINDOW_LEN),
                message_len: MAX_MESSAGE as u64,
            },
            connect_timeout: Duration::from_secs(5),
            request_timeout: Some(Duration::from_secs(30)),
            spin: Duration::ZERO,
            params: Vec::new(),
            version: crate::wire::VERSION,
            lends: false,
        }
    }

    /// The length of the longest message that this side receives, in bytes; 64 MiB by default. A
    /// longer message fails at its sender with [`crate::Error::TooLarge`].
    pub fn max_message(mut self, len: usize) -> Self {
        self.limits.message_len = len as u64;
        self
    }

    /// How much of one connection this side keeps until the application takes it: a number of
    /// messages (64 by default, at least 2 and at most 4096), and the memory of messages over 4 KiB
    /// in bytes (8 MiB by default). The peer's further messages wait at the peer. One message that
    /// is longer than half of the memory is kept in addition.
    pub fn window(mut self, messages: usize, len: usize) -> Self {
        self.limits.messages = u16::try_from(messages.clamp(2, 4096)).unwrap_or(WINDOW);
        self.limits.blocks = blocks(len);
        self
    }

    /// How long [`crate::connect_with`] waits for the server; 5 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The deadline of requests for which the caller sets none, from their start; 30 s by default.
    /// `None` waits until the connection ends.
    pub fn request_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// How long a waiting thread polls before it parks; zero by default. A thread that polls keeps a
    /// processor busy.
    pub fn spin(mut self, time: Duration) -> Self {
        self.spin = time;
        self
    }

    /// Sets a parameter of the provider, such as `FI_SHM_PEER_TIMEOUT`, in place of the environment's.
    pub fn param(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.params.push((name.into(), value.into()));
        self
    }

    /// Requires TLS 1.3 from every peer over TCP, with certificates of both sides. The files are in
    /// PEM form: this side's certificate, its private key, and the trusted authorities.
    ///
    /// [`crate::Peer::identity`] then has the peer's certificate. A client accepts a server whose
    /// certificate is for the address that it connects to, unless [`Self::tls_name`] sets a name.
    #[cfg(feature = "tls")]
    pub fn tls(
        self,
        certificate: impl AsRef<Path>,
        key: impl AsRef<Path>,
        authorities: impl AsRef<Path>,
    ) -> Self {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        self.param("FI_TCP_TLS", "require")
            .param("FI_TCP_TLS_CERT", text(certificate.as_ref()))
            .param("FI_TCP_TLS_KEY", text(key.as_ref()))
            .param("FI_TCP_TLS_CA", text(authorities.as_ref()))
    }

    /// The DNS name that the certificates of peers must have ([`Self::tls`]).
    #[cfg(feature = "tls")]
    pub fn tls_name(self, name: impl Into<String>) -> Self {
        self.param("FI_TCP_TLS_NAME", name)
    }

    /// These options, for a publisher or a subscriber.
    pub(crate) fn lending(&self) -> Self {
        Self {
            lends: true,
            ..self.clone()
        }
    }

    /// Whether the environment or the program sets a parameter of the providers.
    pub(crate) fn has_param(&self, name: &str) -> bool {
        let is_set = self.params.iter().any(|(known, _)| known == name);
        is_set || std::env::var_os(name).is_some()
    }

    /// The parameters of the providers: those of the environment, and those set here.
    pub(crate) fn provider_params(&self) -> Params {
        let params = self.params.iter();
        params.fold(Params::from_env(), |params, (name, value)| {
            params.set(name, value)
        })
    }
}

fn blocks(len: usize) -> u32 {
    u32::try_from(len.div_ceil(4096)).unwrap_or(u32::MAX)
}
