//! TLS and mutual TLS from PEM files that are read again when they change, so that renewed certificates
//! need no restart.
//!
//! Each new connection looks at the files (a `stat` each) and takes the configuration made from what is
//! there now; running connections keep theirs. Files that cannot be used, such as a certificate whose key
//! has not been written yet, leave the last good configuration in force and are logged.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        self, ClientConfig, RootCertStore, ServerConfig,
        crypto::{CryptoProvider, ring},
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem, pem::PemObject as _},
        server::WebPkiClientVerifier,
    },
};

/// Why TLS cannot be set up, with the file that is to blame.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or is not PEM of the kind wanted.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: pem::Error,
    },
    /// The files are readable, but do not work together.
    #[error("certificate {}: {reason}", path.display())]
    Unusable {
        /// The certificate, or the authority, that was being put to use.
        path: PathBuf,
        /// What rustls says.
        reason: String,
    },
}

/// A certificate chain and its private key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The chain, leaf first.
    pub cert: PathBuf,
    /// PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// The serving side: takes TLS on accepted connections.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<Reloaded<ServerConfig>>);

impl Acceptor {
    /// Serves under `identity`; with `client_ca`, only callers whose certificate that authority signed.
    ///
    /// # Errors
    /// When the files cannot be used.
    pub fn new(identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
        let mut files = vec![identity.cert.clone(), identity.key.clone()];
        files.extend(client_ca.clone());
        let make = move || server_config(&identity, client_ca.as_deref());
        Ok(Self(Arc::new(Reloaded::new(files, Box::new(make))?)))
    }

    /// The server's side of the handshake on `tcp`.
    ///
    /// # Errors
    /// When the peer breaks off, speaks something else, or shows no acceptable certificate.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
        TlsAcceptor::from(self.0.current()).accept(tcp).await
    }
}

/// The calling side: dials, and checks who answers.
#[derive(Clone, Debug)]
pub struct Dialer {
    config: Arc<Reloaded<ClientConfig>>,
    name: Option<ServerName<'static>>,
}

impl Dialer {
    /// Trusts what `ca` signed for `name` (`None`: for the host that is dialled), and shows `identity` to
    /// servers that ask for one.
    ///
    /// # Errors
    /// When the files cannot be used, or `name` is not a DNS name or address.
    pub fn new(ca: PathBuf, identity: Option<Identity>, name: Option<String>) -> Result<Self, TlsError> {
        let bad_name = |name: &str| TlsError::Unusable {
            path: ca.clone(),
            reason: format!("{name:?} is neither a DNS name nor an address"),
        };
        let name = match name {
            Some(name) => Some(ServerName::try_from(name.clone()).map_err(|_| bad_name(&name))?),
            None => None,
        };
        let mut files = vec![ca.clone()];
        files.extend(identity.iter().flat_map(|identity| [identity.cert.clone(), identity.key.clone()]));
        let make = move || client_config(&ca, identity.as_ref());
        Ok(Self { config: Arc::new(Reloaded::new(files, Box::new(make))?), name })
    }

    /// The client's side of the handshake on `tcp`, which leads to `host`.
    ///
    /// # Errors
    /// When the server's certificate is not acceptable, or it breaks off.
    pub async fn connect(
        &self,
        host: &str,
        tcp: TcpStream,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
                .map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?,
        };
        TlsConnector::from(self.config.current()).connect(name, tcp).await
    }
}

fn server_config(identity: &Identity, client_ca: Option<&Path>) -> Result<ServerConfig, TlsError> {
    let unusable = |reason: String| TlsError::Unusable { path: identity.cert.clone(), reason };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|reason| unusable(reason.to_string()))?;
    let builder = match client_ca {
        Some(ca) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(ca)?), provider())
                .build()
                .map_err(|reason| TlsError::Unusable { path: ca.into(), reason: reason.to_string() })?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let (chain, key) = read_identity(identity)?;
    let mut config = builder.with_single_cert(chain, key).map_err(|reason| unusable(reason.to_string()))?;
    // gRPC, and plain HTTP on the same port.
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// What a client trusts and shows: servers that `ca` signed, and `identity` to those that ask; for h2.
///
/// # Errors
/// When the files cannot be used.
pub fn client_config(ca: &Path, identity: Option<&Identity>) -> Result<ClientConfig, TlsError> {
    let unusable = |reason: rustls::Error| TlsError::Unusable { path: ca.into(), reason: reason.to_string() };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_root_certificates(roots(ca)?);
    let mut config = match identity {
        Some(identity) => {
            let (chain, key) = read_identity(identity)?;
            builder.with_client_auth_cert(chain, key).map_err(unusable)?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read_identity(
    identity: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let key = PrivateKeyDer::from_pem_file(&identity.key)
        .map_err(|reason| TlsError::File { path: identity.key.clone(), reason })?;
    Ok((certificates(&identity.cert)?, key))
}

fn roots(ca: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots
            .add(certificate)
            .map_err(|reason| TlsError::Unusable { path: ca.into(), reason: reason.to_string() })?;
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|reason| TlsError::File { path: path.into(), reason })
}

type Make<T> = Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>;

/// A value made from files, made anew when one of them has changed.
struct Reloaded<T> {
    files: Vec<PathBuf>,
    make: Make<T>,
    last: Mutex<(Vec<Option<Version>>, Arc<T>)>,
}

/// What tells one content of a file from the next without reading it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Version {
    modified: SystemTime,
    length: u64,
    inode: u64,
}

impl<T> Reloaded<T> {
    fn new(files: Vec<PathBuf>, make: Make<T>) -> Result<Self, TlsError> {
        // Versions first: a change while reading is then seen next time.
        let versions = versions(&files);
        let value = Arc::new(make()?);
        Ok(Self { files, make, last: Mutex::new((versions, value)) })
    }

    fn current(&self) -> Arc<T> {
        let now = versions(&self.files);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != now {
            last.0 = now;
            match (self.make)() {
                Ok(value) => {
                    tracing::info!(files = ?self.files, "TLS files changed: read again");
                    last.1 = Arc::new(value);
                }
                Err(error) => {
                    tracing::warn!(%error, "TLS files changed and cannot be used: keeping the last")
                }
            }
        }
        Arc::clone(&last.1)
    }
}

impl<T> std::fmt::Debug for Reloaded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloaded").field("files", &self.files).finish_non_exhaustive()
    }
}

fn versions(files: &[PathBuf]) -> Vec<Option<Version>> {
    use std::os::unix::fs::MetadataExt as _;
    let version = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some(Version { modified: metadata.modified().ok()?, length: metadata.len(), inode: metadata.ino() })
    };
    files.iter().map(version).collect()
}
