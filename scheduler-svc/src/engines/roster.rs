//! Which engines there are: fixed addresses, or all that one DNS name resolves to, asked again and again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Context, link, link::AttachmentIds};

/// Where engines are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roster {
    /// These addresses, host:port. A host is resolved at every dial.
    Fixed(Vec<String>),
    /// Every address of this name:port (a headless service), resolved every `refresh`.
    Dns {
        /// name:port
        name: String,
        /// Time between look-ups.
        refresh: Duration,
    },
}

impl Roster {
    /// Keeps a link to every engine until `stop`.
    pub async fn run(self, context: Context, stop: CancellationToken) {
        let mut links = Links {
            context,
            ids: Arc::default(),
            running: HashMap::new(),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        };
        match self {
            Self::Fixed(addresses) => links.keep(addresses.into_iter().map(Arc::from).collect()),
            Self::Dns { name, refresh } => {
                while !stop.is_cancelled() {
                    match tokio::net::lookup_host(&name).await {
                        Ok(found) => links.keep(found.map(|a| Arc::from(a.to_string())).collect()),
                        // The engines that are attached stay: a name server that is down takes nothing away.
                        Err(error) => tracing::warn!(%name, %error, "engine name does not resolve"),
                    }
                    stop.run_until_cancelled(tokio::time::sleep(refresh)).await;
                }
            }
        }
        stop.cancelled().await;
        links.tasks.close();
        links.tasks.wait().await;
    }
}

struct Links {
    context: Context,
    ids: Arc<AttachmentIds>,
    running: HashMap<Arc<str>, Running>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Running {
    stop: CancellationToken,
    attached: Arc<AtomicBool>,
}

impl Links {
    /// Starts links to new addresses and ends those to addresses that are gone. An engine that is attached
    /// stays so: it may finish what it runs, and a name that flaps costs nothing.
    fn keep(&mut self, addresses: BTreeSet<Arc<str>>) {
        self.running.retain(|address, link| {
            let stays = addresses.contains(address) || link.attached.load(Ordering::Relaxed);
            if !stays {
                tracing::info!(engine = %address, "engine address is gone");
                link.stop.cancel();
            }
            stays
        });
        for address in addresses {
            self.running.entry(address).or_insert_with_key(|address| {
                let stop = self.stop.child_token();
                let attached = Arc::<AtomicBool>::default();
                self.tasks.spawn(link::run(
                    self.context.clone(),
                    address.clone(),
                    self.ids.clone(),
                    attached.clone(),
                    stop.clone(),
                ));
                Running { stop, attached }
            });
        }
    }
}
