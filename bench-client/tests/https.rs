//! The client against an OpenAI-compatible server over HTTPS, on loopback.

use std::{net::SocketAddr, path::PathBuf, process::Output};

use axum::{Router, routing, serve::Listener};
use firstlight_proto::serve::tls::{Acceptor, Identity};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

const COMPLETION: &str = "data: {\"choices\":[{\"text\":\"Hi\"}]}\n\n\
     data: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n";

/// Accepts TLS for axum.
struct Tls(TcpListener, Acceptor);

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let Ok((tcp, addr)) = self.0.accept().await else { continue };
            if let Ok(tls) = self.1.accept(tcp).await {
                return (tls, addr);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// A folder with a certificate for `localhost` that signs itself.
struct Files(PathBuf);

impl Files {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("https-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir_all(&folder).unwrap();
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(folder.join("cert.pem"), signed.cert.pem()).unwrap();
        std::fs::write(folder.join("key.pem"), signed.signing_key.serialize_pem()).unwrap();
        Self(folder)
    }

    fn identity(&self) -> Identity {
        Identity { cert: self.0.join("cert.pem"), key: self.0.join("key.pem") }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn server(files: &Files) -> String {
    let models = || std::future::ready(r#"{"data":[{"id":"tiny"}]}"#);
    let router = Router::new()
        .route("/v1/models", routing::get(models))
        .route("/v1/completions", routing::post(|| std::future::ready(COMPLETION)));
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = tcp.local_addr().unwrap().port();
    let listener = Tls(tcp, Acceptor::new(files.identity(), None).unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("https://localhost:{port}")
}

async fn bench(base: &str, more: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_bench-client"));
    command.args(["run", "--openai", base, "--num-requests", "6", "--no-self-check", "--json"]).args(more);
    command.output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_over_https_is_measured_like_any_other() {
    let files = Files::new();
    let base = server(&files).await;
    let ca = files.identity().cert;
    let out = bench(&base, &["--tls-ca", ca.to_str().unwrap()]).await;
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&json["requests"]["completed"], &json["ttft"]["n"]), (&6.into(), &6.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_no_authority_of_the_system_signed_is_not_trusted() {
    let files = Files::new();
    let base = server(&files).await;
    let out = bench(&base, &[]).await;
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("no answer from https://localhost"), "{said}");
}
