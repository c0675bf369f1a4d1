//! Engines behind one DNS name, as behind a headless service: they join and leave while requests run.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use firstlight_tests::{
    assets,
    client::{Client, ids_request},
    scrape::Page,
    service::{Service, free_address},
    wait,
};

#[tokio::test]
async fn engines_join_and_leave_by_name_without_a_failed_request() {
    let port = free_address().rsplit_once(':').unwrap().1.to_owned();
    let names = Names::new("engines.test");
    let metrics = [free_address(), free_address()];
    let engine = |host: usize| {
        let listen = format!("127.0.0.{host}:{port}");
        let flags = [
            format!("--listen={listen}"),
            format!("--metrics-listen={}", metrics[host - 1]),
            format!("--name=engine-{host}"),
            "--backend=sim".to_owned(),
        ];
        Service::start(&format!("engine-{host}"), "engine-svc", &listen, &flags, names.folder())
    };
    let (mut first, mut second) = (engine(1), engine(2));
    wait::within_patience("the first engine", first.ready()).await;
    wait::within_patience("the second engine", second.ready()).await;

    names.resolve_to(&["127.0.0.1"]);
    let (listen, scheduler_metrics) = (free_address(), free_address());
    let flags = [
        format!("--engine-dns=engines.test:{port}"),
        "--engine-dns-seconds=0.2".to_owned(),
        format!("--listen={listen}"),
        format!("--metrics-listen={scheduler_metrics}"),
        format!("--admin-listen={}", free_address()),
    ];
    let mut scheduler = names.start("scheduler-svc", &listen, &flags);
    wait::within_patience("the scheduler", scheduler.ready()).await;

    let load = Load::start(Client::connect(&listen).await);
    attached(&scheduler_metrics, 1.0).await;

    names.resolve_to(&["127.0.0.1", "127.0.0.2"]);
    attached(&scheduler_metrics, 2.0).await;
    wait::until("tokens from the engine that joined", || async {
        let tokens = Page::of(&metrics[1]).await.sum("firstlight_engine_generated_tokens_total");
        (tokens > 0.0).then_some(tokens)
    })
    .await;

    // As a pod ends: out of DNS, then SIGTERM, then it drains.
    names.resolve_to(&["127.0.0.2"]);
    first.terminate();
    first.ended().await;
    attached(&scheduler_metrics, 1.0).await;
    let before = load.served();
    wait::until("requests served by the engine that stayed", || async {
        (load.served() > before + 20).then_some(())
    })
    .await;
    assert_eq!(load.end().await, 0, "requests failed");
}

async fn attached(metrics: &str, engines: f64) {
    wait::until("engines attached", || async {
        (Page::of(metrics).await.sum("firstlight_engines_attached") == engines).then_some(())
    })
    .await;
}

/// What one name resolves to, for processes started here: a hosts file of their own in a mount namespace.
struct Names {
    name: &'static str,
    folder: std::path::PathBuf,
}

impl Names {
    fn new(name: &'static str) -> Self {
        Self { name, folder: assets::scratch_folder() }
    }

    fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Written in place: a bind mount shows this very file, not one renamed over it.
    fn resolve_to(&self, addresses: &[&str]) {
        let lines: String = addresses.iter().map(|address| format!("{address} {}\n", self.name)).collect();
        fs::write(self.folder.join("hosts"), lines).unwrap();
    }

    fn start(&self, program: &str, address: &str, flags: &[String]) -> Service {
        let script = r#"mount --bind "$1" /etc/hosts && shift && exec "$@""#;
        let mut args = ["--map-root-user", "--mount", "sh", "-c", script, "sh"].map(str::to_owned).to_vec();
        args.push(self.folder.join("hosts").display().to_string());
        args.push(assets::program(program).display().to_string());
        args.extend_from_slice(flags);
        Service::start(program, "/usr/bin/unshare", address, &args, &self.folder)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Eight clients, one request after the other.
struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU32>,
    clients: Vec<tokio::task::JoinHandle<u32>>,
}

impl Load {
    fn start(client: Client) -> Self {
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let clients = (0..8)
            .map(|_| {
                let (client, stop, served) = (client.clone(), stop.clone(), served.clone());
                tokio::spawn(async move {
                    let mut failed = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let reply = client.generate(ids_request(&[1, 2, 3, 4], 16)).await;
                        match reply {
                            Ok(reply) if reply.ids.len() == 16 => {
                                served.fetch_add(1, Ordering::Relaxed);
                            }
                            _ => failed += 1,
                        }
                    }
                    failed
                })
            })
            .collect();
        Self { stop, served, clients }
    }

    fn served(&self) -> u32 {
        self.served.load(Ordering::Relaxed)
    }

    /// Ends the load; how many requests failed.
    async fn end(self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        let mut failed = 0;
        for client in self.clients {
            failed += client.await.unwrap();
        }
        failed
    }
}
