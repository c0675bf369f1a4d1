//! A way between a scheduler and an engine that a test can cut.

use tokio::{
    io,
    net::{TcpListener, TcpStream},
    sync::broadcast,
    task::JoinHandle,
};

use crate::service::free_address;

/// A TCP relay on loopback. New connections pass until it is dropped; [`Relay::cut`] ends those that are open.
pub struct Relay {
    /// Where it listens.
    pub address: String,
    cuts: broadcast::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Relays to `target`, which need not be there yet.
    ///
    /// # Panics
    /// When it cannot listen.
    pub async fn to(target: &str) -> Self {
        let address = free_address();
        let listener = TcpListener::bind(&address).await.expect("listener of a relay");
        let (cuts, _) = broadcast::channel(1);
        let accepting = tokio::spawn(accept(listener, target.to_owned(), cuts.clone()));
        Self { address, cuts, accepting }
    }

    /// Ends every open connection, both ways, and returns how many there were.
    pub fn cut(&self) -> usize {
        self.cuts.send(()).unwrap_or(0)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, target: String, cuts: broadcast::Sender<()>) {
    while let Ok((mut near, _)) = listener.accept().await {
        let (target, mut cut) = (target.clone(), cuts.subscribe());
        tokio::spawn(async move {
            let relayed = async {
                let mut far = TcpStream::connect(&target).await?;
                io::copy_bidirectional(&mut near, &mut far).await
            };
            // An end of either side, or a cut, ends both.
            tokio::select! { _ = relayed => {} _ = cut.recv() => {} }
        });
    }
}
