//! TLS and mutual TLS over real sockets: who gets in, and that renewed files need no restart.

use std::{net::SocketAddr, path::Path, time::Duration};

use firstlight_proto::{
    serve::{
        dial, listen,
        tls::{Acceptor, Dialer, Identity},
    },
    v1::inference_client::InferenceClient,
};
use firstlight_tests::{
    bench,
    client::ids_request,
    pki::Pki,
    service::{Service, free_address},
    wait,
};
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

#[tokio::test]
async fn a_caller_reaches_the_server_over_tls() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let addr = serve(Acceptor::new(pki.identity("server", &ca), None).unwrap()).await;
    let dialer = Dialer::new(pki.pem("ca"), None, Some("localhost".into())).unwrap();
    check(dial(addr, Some(dialer)).await.unwrap()).await.unwrap();
    assert!(dial(addr, None).await.is_err() || check(dial(addr, None).await.unwrap()).await.is_err());
}

#[tokio::test]
async fn a_server_that_another_authority_signed_is_not_trusted() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    pki.authority("other");
    let addr = serve(Acceptor::new(pki.identity("server", &ca), None).unwrap()).await;
    let dialer = Dialer::new(pki.pem("other"), None, Some("localhost".into())).unwrap();
    assert!(dial(addr, Some(dialer)).await.is_err());
}

#[tokio::test]
async fn a_server_under_another_name_is_not_trusted() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let addr = serve(Acceptor::new(pki.identity("server", &ca), None).unwrap()).await;
    let dialer = Dialer::new(pki.pem("ca"), None, Some("elsewhere".into())).unwrap();
    assert!(dial(addr, Some(dialer)).await.is_err());
}

#[tokio::test]
async fn mutual_tls_admits_only_callers_of_its_authority() {
    let pki = Pki::new();
    let (ca, other) = (pki.authority("ca"), pki.authority("other"));
    let server = Acceptor::new(pki.identity("server", &ca), Some(pki.pem("ca"))).unwrap();
    let addr = serve(server).await;
    let dialer = |identity| Dialer::new(pki.pem("ca"), identity, Some("localhost".into())).unwrap();

    let ours = dialer(Some(pki.identity("client", &ca)));
    check(dial(addr, Some(ours)).await.unwrap()).await.unwrap();

    for stranger in [None, Some(pki.identity("stranger", &other))] {
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
    let pki = Pki::new();
    let old = pki.authority("ca");
    let server = Acceptor::new(pki.identity("server", &old), Some(pki.pem("ca"))).unwrap();
    let addr = serve(server).await;
    let mut client = pki.identity("client", &old);
    let dialer = Dialer::new(pki.pem("ca"), Some(client.clone()), Some("localhost".into())).unwrap();
    let running = dial(addr, Some(dialer.clone())).await.unwrap();
    check(running.clone()).await.unwrap();

    // Another authority altogether, in the same files, on both sides.
    let new = pki.authority("ca");
    pki.identity("server", &new);
    client = pki.identity("client", &new);
    check(dial(addr, Some(dialer)).await.unwrap()).await.unwrap();
    check(running).await.expect("a connection that runs goes on");
    let fresh = Dialer::new(pki.pem("ca"), Some(client), Some("localhost".into())).unwrap();
    check(dial(addr, Some(fresh)).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_last_good_ones_in_force() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let identity = pki.identity("server", &ca);
    let addr = serve(Acceptor::new(identity.clone(), None).unwrap()).await;
    let dialer = Dialer::new(pki.pem("ca"), None, Some("localhost".into())).unwrap();

    std::fs::write(&identity.cert, "half a certifi").unwrap();
    check(dial(addr, Some(dialer.clone())).await.unwrap()).await.unwrap();
    std::fs::remove_file(&identity.key).unwrap();
    check(dial(addr, Some(dialer)).await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_peer_that_never_finishes_its_handshake_holds_up_nobody() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let addr = serve(Acceptor::new(pki.identity("server", &ca), None).unwrap()).await;
    let silent: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(addr).unwrap()).collect();
    let dialer = Dialer::new(pki.pem("ca"), None, Some("localhost".into())).unwrap();
    check(dial(addr, Some(dialer)).await.unwrap()).await.unwrap();
    drop(silent);
}

#[test]
fn a_missing_file_is_named() {
    let pki = Pki::new();
    let identity = Identity { cert: pki.pem("none"), key: pki.pem("none") };
    let error = Acceptor::new(identity, None).unwrap_err().to_string();
    assert!(error.contains("none.pem"), "{error}");
}

#[tokio::test]
async fn the_pair_serves_over_mutual_tls_and_takes_renewed_certificates() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let (scheduler, engine) = (pki.identity("scheduler", &ca), pki.identity("engine", &ca));
    let client = pki.identity("client", &ca);
    let dialer = || Dialer::new(pki.pem("ca"), Some(client.clone()), Some("localhost".into())).unwrap();
    let mut pair = TlsPair::start(&pki, &scheduler, &engine).await;
    let addr = pair.scheduler_listen.parse().unwrap();

    generate(dial(addr, Some(dialer())).await.unwrap()).await.unwrap();
    let stranger = Dialer::new(pki.pem("ca"), None, Some("localhost".into())).unwrap();
    let refused = match dial(addr, Some(stranger)).await {
        Ok(channel) => generate(channel).await.is_err(),
        Err(_) => true,
    };
    assert!(refused, "a client without a certificate was served");

    // A new authority under everything, and an engine that has to attach again.
    let ca = pki.authority("ca");
    for name in ["scheduler", "engine", "client"] {
        pki.identity(name, &ca);
    }
    pair.engine.kill();
    pair.engine.restart();
    wait::within_patience("an engine that is ready", pair.engine.ready()).await;
    wait::until("a scheduler that has attached again", || async {
        let served = generate(dial(addr, Some(dialer())).await.ok()?).await;
        served.ok()
    })
    .await;
    assert!(pair.scheduler.running());
}

#[tokio::test]
async fn the_bench_client_measures_the_pair_over_mutual_tls_with_spans_from_both() {
    let pki = Pki::new();
    let ca = pki.authority("ca");
    let (scheduler, engine) = (pki.identity("scheduler", &ca), pki.identity("engine", &ca));
    let client = pki.identity("client", &ca);
    let pair = TlsPair::start(&pki, &scheduler, &engine).await;
    let mut command = bench::command("run");
    command.args([
        "--target",
        &pair.scheduler_listen,
        "--admin",
        &free_address(),
        "--json",
        "--no-self-check",
    ]);
    command.args([
        "--num-requests",
        "8",
        "--max-new-tokens",
        "2",
        "--require-closed",
        "--tls-name",
        "localhost",
    ]);
    command.arg("--tls-ca").arg(pki.pem("ca"));
    let stranger = command.output().await.unwrap();
    assert!(!stranger.status.success(), "a bench without a certificate was served");
    command.arg("--tls-cert").arg(client.cert).arg("--tls-key").arg(client.key);
    let ended = wait::within_patience("a run", command.output()).await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let json: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(json["requests"]["completed"], 8);
    assert_eq!((&json["spans"]["scheduler_direct"], &json["spans"]["engine_direct"]), (&8.into(), &8.into()));
}

/// A pair with mutual TLS on both hops; health in the clear beside it.
struct TlsPair {
    scheduler: Service,
    engine: Service,
    scheduler_listen: String,
}

impl TlsPair {
    async fn start(pki: &Pki, scheduler: &Identity, engine: &Identity) -> Self {
        let (engine_listen, engine_health) = (free_address(), free_address());
        let (scheduler_listen, scheduler_health) = (free_address(), free_address());
        let ca = pki.pem("ca");
        let folder = ca.parent().unwrap();
        let mut flags = tls_flags(&engine_listen, &engine_health, engine, &ca);
        flags.extend(["--backend", "sim"].map(str::to_owned));
        let mut engine = Service::start("engine", "engine-svc", &engine_health, &flags, folder);
        let mut flags = tls_flags(&scheduler_listen, &scheduler_health, scheduler, &ca);
        flags.extend([
            format!("--engine={engine_listen}"),
            format!("--admin-listen={}", free_address()),
            format!("--engine-tls-ca={}", ca.display()),
            format!("--engine-tls-cert={}", scheduler.cert.display()),
            format!("--engine-tls-key={}", scheduler.key.display()),
            "--engine-tls-name=localhost".to_owned(),
        ]);
        let mut scheduler = Service::start("scheduler", "scheduler-svc", &scheduler_health, &flags, folder);
        wait::within_patience("an engine that is ready", engine.ready()).await;
        wait::within_patience("a scheduler that is ready", scheduler.ready()).await;
        Self { scheduler, engine, scheduler_listen }
    }
}

fn tls_flags(listen: &str, health: &str, identity: &Identity, ca: &Path) -> Vec<String> {
    vec![
        format!("--listen={listen}"),
        format!("--metrics-listen={}", free_address()),
        format!("--health-listen={health}"),
        format!("--tls-cert={}", identity.cert.display()),
        format!("--tls-key={}", identity.key.display()),
        format!("--tls-client-ca={}", ca.display()),
    ]
}

async fn generate(channel: Channel) -> Result<(), tonic::Status> {
    let stream = InferenceClient::new(channel).generate(ids_request(&[1, 2, 3], 4)).await?;
    let mut stream = stream.into_inner();
    while stream.message().await?.is_some() {}
    Ok(())
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
