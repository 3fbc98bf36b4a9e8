//! `Identity`: the local certificate and the trusted authorities, read from the files that the
//! parameters name.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use selvedge::param::Params;
use selvedge::{Errno, Error};

use super::session::Session;

/// An `Identity` is the certificate that an endpoint presents, and the rules for its peers'
/// certificates. It is cheap to clone.
#[derive(Clone)]
pub(crate) struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// The name that peers' certificates must have. Without it, a server's certificate must match
    /// the address that the client connects to.
    name: Option<ServerName<'static>>,
}

/// Reads the identity that the parameters require; `None` if TLS is off.
///
/// # Errors
/// [`Errno::Inval`] with the parameter and its value: a missing parameter, a file that cannot be
/// read or has no certificate or key, or a key that does not belong to the certificate.
pub(crate) fn identity(params: &Params) -> Result<Option<Identity>, Error> {
    match &*params.text("FI_TCP_TLS")? {
        "require" => Identity::read(params).map(Some),
        _ => Ok(None),
    }
}

impl Identity {
    fn read(params: &Params) -> Result<Self, Error> {
        let cert = file(params, "FI_TCP_TLS_CERT")?;
        let chain = certificates(&cert)?;
        let key = file(params, "FI_TCP_TLS_KEY")?;
        let private_key = PrivateKeyDer::from_pem_file(&key.path);
        let private_key = private_key.map_err(|cause| key.unreadable(&cause, "private key"))?;
        let authorities = file(params, "FI_TCP_TLS_CA")?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&authorities)? {
            roots.add(root).map_err(|cause| authorities.bad(&cause))?;
        }
        let roots = Arc::new(roots);
        let name = params.text("FI_TCP_TLS_NAME")?;
        let name = (!name.is_empty()).then(|| server_name(&name)).transpose()?;

        let crypto = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&crypto));
        let verifier = verifier.build().map_err(|cause| authorities.bad(&cause))?;
        let verifier: Arc<dyn ClientCertVerifier> = match name.clone() {
            None => verifier,
            Some(name) => Arc::new(NamedVerifier { verifier, name }),
        };
        let server_key = private_key.clone_key();
        let server = server_config(&crypto, verifier, chain.clone(), server_key);
        let client = client_config(&crypto, roots, chain, private_key);
        let mismatch = |cause| {
            let File { name, path } = &cert;
            key.bad(&format_args!("with {name}={path:?}: {cause}"))
        };
        Ok(Self {
            client: Arc::new(client.map_err(mismatch)?),
            server: Arc::new(server.map_err(mismatch)?),
            name,
        })
    }

    /// Creates the session of an outgoing connection to an address.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub(crate) fn client_session(&self, to: IpAddr) -> io::Result<Session> {
        let name = self.name.clone();
        let name = name.unwrap_or_else(|| ServerName::from(to.to_canonical()));
        let connection = ClientConnection::new(Arc::clone(&self.client), name);
        Ok(Session::new(connection.map_err(io::Error::other)?.into()))
    }

    /// Creates the session of an incoming connection.
    ///
    /// # Errors
    /// As [`Self::client_session`].
    pub(crate) fn server_session(&self) -> io::Result<Session> {
        let connection = ServerConnection::new(Arc::clone(&self.server));
        Ok(Session::new(connection.map_err(io::Error::other)?.into()))
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut identity = f.debug_struct("Identity");
        identity.field("name", &self.name).finish_non_exhaustive()
    }
}

fn client_config(
    crypto: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    let config = ClientConfig::builder_with_provider(Arc::clone(crypto))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots);
    let mut config = config.with_client_auth_cert(chain, key)?;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(config)
}

fn server_config(
    crypto: &Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let config = ServerConfig::builder_with_provider(Arc::clone(crypto))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier);
    let mut config = config.with_single_cert(chain, key)?;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Accepts clients whose certificates are valid and have the configured name.
#[derive(Debug)]
struct NamedVerifier {
    verifier: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NamedVerifier {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.verifier.verify_client_cert(end_entity, chain, now)?;
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, &self.name)?;
        Ok(verified)
    }

    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// A file that a parameter names.
struct File {
    name: &'static str,
    path: String,
}

impl File {
    fn bad(&self, why: &dyn fmt::Display) -> Error {
        let Self { name, path } = self;
        Error::new(Errno::Inval, format!("{name}={path:?}: {why}"))
    }

    fn unreadable(&self, cause: &pem::Error, expected: &str) -> Error {
        match cause {
            pem::Error::Io(cause) => self.bad(cause),
            pem::Error::NoItemsFound => self.bad(&format_args!("the file contains no {expected}")),
            other => self.bad(other),
        }
    }
}

fn file(params: &Params, name: &'static str) -> Result<File, Error> {
    let path = params.text(name)?;
    if path.is_empty() {
        Err(Error::new(
            Errno::Inval,
            format!("{name} is not set; FI_TCP_TLS=require needs it"),
        ))
    } else {
        Ok(File { name, path })
    }
}

fn certificates(file: &File) -> Result<Vec<CertificateDer<'static>>, Error> {
    let unreadable = |cause| file.unreadable(&cause, "certificate");
    let all = CertificateDer::pem_file_iter(&file.path).map_err(unreadable)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if all.is_empty() {
        Err(unreadable(pem::Error::NoItemsFound))
    } else {
        Ok(all)
    }
}

fn server_name(name: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name.to_owned()).map_err(|_| {
        let text = format!("FI_TCP_TLS_NAME={name:?}: neither the name of a host nor an address");
        Error::new(Errno::Inval, text)
    })
}
