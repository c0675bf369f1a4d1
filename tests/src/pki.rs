//! A folder of certificates for one test.

use std::{
    fs,
    path::{Path, PathBuf},
};

use firstlight_proto::serve::tls::Identity;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::assets;

/// PEM files, gone with the test. A name used again replaces the file as a certificate manager does it:
/// written aside, then renamed.
pub struct Pki(PathBuf);

/// Signs identities.
pub type Authority = CertifiedIssuer<'static, KeyPair>;

impl Pki {
    /// An empty folder.
    pub fn new() -> Self {
        Self(assets::scratch_folder())
    }

    /// The file called `name`.
    pub fn pem(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.pem"))
    }

    /// A new authority, its certificate in the file `name`.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn authority(&self, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("authority");
        replace(&self.pem(name), &authority.pem());
        authority
    }

    /// A certificate for `localhost` and its key, in the files `name` and `name-key`.
    ///
    /// # Panics
    /// When the files cannot be written.
    pub fn identity(&self, name: &str, signed_by: &Authority) -> Identity {
        let key = KeyPair::generate().expect("key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a DNS name");
        let certificate = params.signed_by(&key, signed_by).expect("certificate");
        let identity = Identity { cert: self.pem(name), key: self.pem(&format!("{name}-key")) };
        replace(&identity.key, &key.serialize_pem());
        replace(&identity.cert, &certificate.pem());
        identity
    }
}

impl Default for Pki {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Pki {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn replace(path: &Path, content: &str) {
    let aside = path.with_extension("new");
    fs::write(&aside, content).expect("scratch folder");
    fs::rename(aside, path).expect("scratch folder");
}
