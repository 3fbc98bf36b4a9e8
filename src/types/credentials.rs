//! `PeerCredentials`: facts about a peer for which the kernel or a certificate authority vouches.

/// Facts about a peer that the peer cannot choose: the kernel or a certificate authority vouches
/// for them. [`crate::Endpoint::peer_credentials`] returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerCredentials {
    /// The kernel vouches for the process that opened the peer's end of the connection
    /// (`SO_PEERCRED`, unix(7)). Its children share the connection. The kernel may give the number
    /// of an ended process to another one.
    Process {
        /// The process; 0 if it is not visible in the pid namespace of this process.
        pid: i32,
        /// The effective user when the connection was opened.
        uid: u32,
        /// The effective group when the connection was opened.
        gid: u32,
    },
    /// A trusted certificate authority vouches for the certificate, and the peer has proved that it
    /// has the private key (TLS).
    Certificate {
        /// The DNS names of the certificate (`subjectAltName`), in its order.
        names: Vec<String>,
        /// The certificate in DER.
        der: Vec<u8>,
    },
}
