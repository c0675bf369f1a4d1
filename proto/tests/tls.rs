//! TLS and mutual TLS over real sockets: who gets in, and that renewed files need no restart.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use firstlight_proto::serve::{
    dial, listen,
    tls::{Acceptor, Dialer, Identity},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

#[tokio::test]
async fn a_caller_reaches_the_server_over_tls() {
    let files = Files::new();
    let ca = files.authority("ca");
    let addr = serve(Acceptor::new(files.identity("server", &ca), None).unwrap()).await;
    let dialer = Dialer::new(files.pem("ca"), None, Some("localhost".into())).unwrap();
    check(dial(addr, Some(dialer)).await.unwrap()).await.unwrap();
    assert!(dial(addr, None).await.is_err() || check(dial(addr, None).await.unwrap()).await.is_err());
}

#[tokio::test]
async fn a_server_that_another_authority_signed_is_not_trusted() {
    let files = Files::new();
    let ca = files.authority("ca");
    files.authority("other");
    let addr = serve(Acceptor::new(files.identity("server", &ca), None).unwrap()).await;
    let dialer = Dialer::new(files.pem("other"), None, Some("localhost".into())).unwrap();
    assert!(dial(addr, Some(dialer)).await.is_err());
}

#[tokio::test]
async fn a_server_under_another_name_is_not_trusted() {
    let files = Files::new();
    let ca = files.authority("ca");
    let addr = serve(Acceptor::new(files.identity("server", &ca), None).unwrap()).await;
    let dialer = Dialer::new(files.pem("ca"), None, Some("elsewhere".into())).unwrap();
    assert!(dial(addr, Some(dialer)).await.is_err());
}

#[tokio::test]
async fn mutual_tls_admits_only_callers_of_its_authority() {
    let files = Files::new();
    let (ca, other) = (files.authority("ca"), files.authority("other"));
    let server = Acceptor::new(files.identity("server", &ca), Some(files.pem("ca"))).unwrap();
    let addr = serve(server).await;
    let dialer = |identity| Dialer::new(files.pem("ca"), identity, Some("localhost".into())).unwrap();

    let ours = dialer(Some(files.identity("client", &ca)));
    check(dial(addr, Some(ours)).await.unwrap()).await.unwrap();

    for stranger in [None, Some(files.identity("stranger", &other))] {
        // TLS 1.3: the server's refusal arrives after the client's handshake is through.
        let refused = match dial(addr, Some(dialer(stranger.clone()))).await {
            Ok(channel) => check(channel).await.is_err(),
            Err(_) => true,
        };
        assert!(refused, "{stranger:?}");
    }
}

#[tokio::test]
async fn renewed_files_are_used_without_a_restart() {
    let files = Files::new();
    let old = files.authority("ca");
    let server = Acceptor::new(files.identity("server", &old), Some(files.pem("ca"))).unwrap();
    let addr = serve(server).await;
    let mut client = files.identity("client", &old);
    let dialer = Dialer::new(files.pem("ca"), Some(client.clone()), Some("localhost".into())).unwrap();
    let running = dial(addr, Some(dialer.clone())).await.unwrap();
    check(running.clone()).await.unwrap();

    // Another authority altogether, in the same files, on both sides.
    let new = files.authority("ca");
    files.identity("server", &new);
    client = files.identity("client", &new);
    check(dial(addr, Some(dialer)).await.unwrap()).await.unwrap();
    check(running).await.expect("a connection that runs goes on");
    let fresh = Dialer::new(files.pem("ca"), Some(client), Some("localhost".into())).unwrap();
    check(dial(addr, Some(fresh)).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_last_good_ones_in_force() {
    let files = Files::new();
    let ca = files.authority("ca");
    let identity = files.identity("server", &ca);
    let addr = serve(Acceptor::new(identity.clone(), None).unwrap()).await;
    let dialer = Dialer::new(files.pem("ca"), None, Some("localhost".into())).unwrap();

    std::fs::write(&identity.cert, "half a certifi").unwrap();
    check(dial(addr, Some(dialer.clone())).await.unwrap()).await.unwrap();
    std::fs::remove_file(&identity.key).unwrap();
    check(dial(addr, Some(dialer)).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_never_finishes_its_handshake_holds_up_nobody() {
    let files = Files::new();
    let ca = files.authority("ca");
    let addr = serve(Acceptor::new(files.identity("server", &ca), None).unwrap()).await;
    let silent: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
    let dialer = Dialer::new(files.pem("ca"), None, Some("localhost".into())).unwrap();
    check(dial(addr, Some(dialer)).await.unwrap()).await.unwrap();
    drop(silent);
}

#[test]
fn a_missing_file_is_named() {
    let files = Files::new();
    let identity = Identity { cert: files.pem("none"), key: files.pem("none") };
    let error = Acceptor::new(identity, None).unwrap_err().to_string();
    assert!(error.contains("none.pem"), "{error}");
}

/// A folder of PEM files, gone with the test.
struct Files(PathBuf);

type Authority = CertifiedIssuer<'static, KeyPair>;

impl Files {
    fn new() -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let next = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("firstlight-tls-{}-{next}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn pem(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.pem"))
    }

    fn authority(&self, name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        replace(&self.pem(name), &authority.pem());
        authority
    }

    fn identity(&self, name: &str, signed_by: &Authority) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        let certificate = params.signed_by(&key, signed_by).unwrap();
        let identity = Identity { cert: self.pem(name), key: self.pem(&format!("{name}-key")) };
        replace(&identity.key, &key.serialize_pem());
        replace(&identity.cert, &certificate.pem());
        identity
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// As a certificate manager does it: written aside, then renamed.
fn replace(path: &Path, content: &str) {
    let aside = path.with_extension("new");
    std::fs::write(&aside, content).unwrap();
    std::fs::rename(aside, path).unwrap();
}

async fn serve(acceptor: Acceptor) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().add_service(health);
    tokio::spawn(server.serve_with_incoming(listen::incoming(listener, Some(acceptor))));
    addr
}

async fn dial(addr: SocketAddr, tls: Option<Dialer>) -> Result<Channel, tonic::transport::Error> {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
    endpoint.timeout(Duration::from_secs(30)).connect_with_connector(dial::connector(tls)).await
}

async fn check(channel: Channel) -> Result<(), tonic::Status> {
    let request = HealthCheckRequest { service: String::new() };
    HealthClient::new(channel).check(request).await.map(drop)
}
