//! Files with authorities and certificates for tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

/// A certificate authority.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// The file of the authority's certificate.
    pub(crate) file: PathBuf,
}

/// The files of a certificate, its key, and the trusted authority.
#[derive(Clone)]
pub(crate) struct Certificate {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) ca: PathBuf,
    /// The name that peers' certificates must have; empty for none.
    pub(crate) name: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        static AUTHORITIES: AtomicUsize = AtomicUsize::new(0);
        let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("authority {number}");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = write_pem("ca", &issuer.pem());
        Self { issuer, file }
    }

    /// Issues a certificate for the loopback addresses and a host name.
    pub(crate) fn issue(&self) -> Certificate {
        self.sign(|_| {})
    }

    /// Issues a certificate with edited parameters.
    pub(crate) fn sign(&self, edit: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let mut params = CertificateParams::new(["fabric.test".to_owned()]).unwrap();
        let loopback: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        params
            .subject_alt_names
            .extend(loopback.map(SanType::IpAddress));
        edit(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Certificate {
            cert: write_pem("cert", &cert.pem()),
            key: write_pem("key", &key.serialize_pem()),
            ca: self.file.clone(),
            name: String::new(),
        }
    }
}

impl Certificate {
    /// The parameters that select these files.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        vec![
            ("FI_TCP_TLS", "require".to_owned()),
            ("FI_TCP_TLS_CERT", path(&self.cert)),
            ("FI_TCP_TLS_KEY", path(&self.key)),
            ("FI_TCP_TLS_CA", path(&self.ca)),
            ("FI_TCP_TLS_NAME", self.name.clone()),
        ]
    }
}

/// The authority of this process.
pub(crate) fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(Authority::new)
}

/// The certificate of endpoints without a specific one.
pub(crate) fn default_certificate() -> &'static Certificate {
    static CERTIFICATE: OnceLock<Certificate> = OnceLock::new();
    CERTIFICATE.get_or_init(|| authority().issue())
}

pub(crate) fn write_pem(prefix: &str, text: &str) -> PathBuf {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = folder().join(format!("{prefix}{number}.pem"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Returns the folder of this process. The first call also removes the folders of exited processes.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("certificates");
        for old in std::fs::read_dir(&all).into_iter().flatten().flatten() {
            if !Path::new("/proc").join(old.file_name()).exists() {
                let _ = std::fs::remove_dir_all(old.path());
            }
        }
        let folder_of_process = all.join(std::process::id().to_string());
        std::fs::create_dir_all(&folder_of_process).unwrap();
        folder_of_process
    })
}
