//! Engines and a scheduler wired together.

use std::{fs, path::PathBuf};

use crate::{
    assets,
    client::Client,
    relay::Relay,
    service::{Service, free_address},
    wait,
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
    folder: PathBuf,
}

/// What to start.
pub struct Plan {
    engines: usize,
    relayed: bool,
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

    /// A new connection to the scheduler.
    pub async fn client(&self) -> Client {
        Client::connect(&self.scheduler.address).await
    }
}

impl Plan {
    fn new() -> Self {
        Self { engines: 1, relayed: false, engine_flags: Vec::new(), scheduler_flags: Vec::new() }
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
    pub fn relayed(mut self) -> Self {
        self.relayed = true;
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
            engines.push(Service::start(&format!("engine-{index}"), "engine-svc", &listen, &args, &folder));
            engine_metrics.push(metrics);
            if self.relayed {
                relays.push(Relay::to(&listen).await);
            }
        }
        let (listen, admin, metrics) = (free_address(), free_address(), free_address());
        let mut args =
            listeners(&[("--listen", &listen), ("--admin-listen", &admin), ("--metrics-listen", &metrics)]);
        let dialled = match self.relayed {
            true => relays.iter().map(|relay| &relay.address).collect::<Vec<_>>(),
            false => engines.iter().map(|engine| &engine.address).collect(),
        };
        args.extend(dialled.into_iter().flat_map(|address| ["--engine".to_owned(), address.clone()]));
        args.extend(self.scheduler_flags);
        let scheduler = Service::start("scheduler", "scheduler-svc", &listen, &args, &folder);
        let mut pair =
            Pair { scheduler, engines, admin, scheduler_metrics: metrics, engine_metrics, relays, folder };
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
