//! Engines and a scheduler wired together.

use std::{fs, path::PathBuf, time::Duration};

use crate::{
    assets,
    client::Client,
    relay::{Relay, Ways},
    service::{Service, free_address},
    time_namespace, wait,
};

/// A running pair: one scheduler and its engines. Dropping it ends them.
pub struct Pair {
    /// The scheduler.
    pub scheduler: Service,
    /// Its engines.
    pub engines: Vec<Service>,
    /// The scheduler's admin listener.
    pub admin: String,
    /// The scheduler's metrics listener.
    pub scheduler_metrics: String,
    /// The engines' metrics listeners, in the order of `engines`.
    pub engine_metrics: Vec<String>,
    /// What lies between the scheduler and each engine, when it was asked for.
    pub relays: Vec<Relay>,
    /// What lies between clients and the scheduler, when it was asked for.
    pub front: Option<Relay>,
    folder: PathBuf,
}

/// What to start.
#[derive(Clone)]
pub struct Plan {
    engines: usize,
    ways: Option<Ways>,
    front: Option<Ways>,
    engine_ahead: Option<Duration>,
    engine_flags: Vec<String>,
    scheduler_flags: Vec<String>,
}

impl Pair {
    /// A pair over the `sim` backend: deterministic tokens at a cost that is slept, no libtorch, token ids only.
    pub fn sim() -> Plan {
        Plan::new().engine(&["--backend", "sim"])
    }

    /// A pair that serves SmolLM2 in f32, as its golden file does.
    pub fn smollm2() -> Plan {
        Plan::new().model(assets::smollm2())
    }

    /// A pair that serves a tiny random Llama in f32: the whole real path in little time.
    pub fn tiny_llama() -> Plan {
        Plan::new().model(assets::tiny_llama())
    }

    /// Waits until every engine is attached; one is enough for the scheduler to be ready.
    pub async fn all_attached(&self) {
        let client = self.client().await;
        wait::until("every engine attached", || async {
            (client.model().await.engines.len() == self.engines.len()).then_some(())
        })
        .await;
    }

    /// Where clients find the scheduler.
    pub fn front(&self) -> &str {
        self.front.as_ref().map_or(&self.scheduler.address, |relay| &relay.address)
    }

    /// A new connection to the scheduler.
    pub async fn client(&self) -> Client {
        Client::connect(&self.scheduler.address).await
    }
}

impl Plan {
    fn new() -> Self {
        Self {
            engines: 1,
            ways: None,
            front: None,
            engine_ahead: None,
            engine_flags: Vec::new(),
            scheduler_flags: Vec::new(),
        }
    }

    fn model(self, path: PathBuf) -> Self {
        let path = path.to_str().expect("a path in UTF-8").to_owned();
        self.engine(&["--model", &path, "--dtype", "f32"]).scheduler(&["--model", &path])
    }

    /// More flags for each engine.
    #[must_use]
    pub fn engine(mut self, flags: &[&str]) -> Self {
        self.engine_flags.extend(flags.iter().map(ToString::to_string));
        self
    }

    /// More flags for the scheduler.
    #[must_use]
    pub fn scheduler(mut self, flags: &[&str]) -> Self {
        self.scheduler_flags.extend(flags.iter().map(ToString::to_string));
        self
    }

    /// How many engines.
    #[must_use]
    pub fn engines(mut self, count: usize) -> Self {
        self.engines = count;
        self
    }

    /// Puts a relay between the scheduler and each engine.
    #[must_use]
    pub fn relayed(self) -> Self {
        self.relayed_along(Ways::default())
    }

    /// The same, and the relay takes its time.
    #[must_use]
    pub fn relayed_along(mut self, ways: Ways) -> Self {
        self.ways = Some(ways);
        self
    }

    /// Puts a relay between clients and the scheduler.
    #[must_use]
    pub fn front_along(mut self, ways: Ways) -> Self {
        self.front = Some(ways);
        self
    }

    /// Runs the engines in a time namespace of their own, whose clock is ahead.
    #[must_use]
    pub fn engines_ahead(mut self, ahead: Duration) -> Self {
        self.engine_ahead = Some(ahead);
        self
    }

    /// Starts all and waits until the scheduler is ready to serve.
    pub async fn start(self) -> Pair {
        let folder = assets::scratch_folder();
        let (mut engines, mut engine_metrics, mut relays) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..self.engines {
            let (listen, metrics) = (free_address(), free_address());
            let mut args = listeners(&[("--listen", &listen), ("--metrics-listen", &metrics)]);
            args.extend(self.engine_flags.iter().cloned());
            let name = format!("engine-{index}");
            engines.push(match self.engine_ahead {
                Some(ahead) => time_namespace::start(&name, "engine-svc", &listen, &args, &folder, ahead),
                None => Service::start(&name, "engine-svc", &listen, &args, &folder),
            });
            engine_metrics.push(metrics);
            if let Some(ways) = self.ways {
                relays.push(Relay::along(&listen, ways).await);
            }
        }
        let (listen, admin, metrics) = (free_address(), free_address(), free_address());
        let mut args =
            listeners(&[("--listen", &listen), ("--admin-listen", &admin), ("--metrics-listen", &metrics)]);
        let dialled = match self.ways {
            Some(_) => relays.iter().map(|relay| &relay.address).collect::<Vec<_>>(),
            None => engines.iter().map(|engine| &engine.address).collect(),
        };
        args.extend(dialled.into_iter().flat_map(|address| ["--engine".to_owned(), address.clone()]));
        args.extend(self.scheduler_flags);
        let scheduler = Service::start("scheduler", "scheduler-svc", &listen, &args, &folder);
        let front = match self.front {
            Some(ways) => Some(Relay::along(&listen, ways).await),
            None => None,
        };
        let mut pair = Pair {
            scheduler,
            engines,
            admin,
            scheduler_metrics: metrics,
            engine_metrics,
            relays,
            front,
            folder,
        };
        for engine in &mut pair.engines {
            wait::within_patience("an engine that is ready", engine.ready()).await;
        }
        wait::within_patience("a scheduler that is ready", pair.scheduler.ready()).await;
        pair.all_attached().await;
        pair
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Its logs; left behind only where somebody will want to read them.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn listeners(flags: &[(&str, &String)]) -> Vec<String> {
    flags.iter().flat_map(|(flag, address)| [(*flag).to_owned(), (*address).clone()]).collect()
}
