//! Metrics of a service, as Prometheus would read them.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// One answer of `/metrics`: values that belong to one moment.
pub struct Page(String);

impl Page {
    /// Asks `http://ADDRESS/metrics`.
    ///
    /// # Panics
    /// When the service does not answer.
    pub async fn of(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("metrics listener");
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("metrics request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("metrics answer");
        Self(answer)
    }

    /// The page as it was served.
    pub fn text(&self) -> &str {
        self.0.split_once("\r\n\r\n").map_or("", |(_, page)| page)
    }

    /// The sum over all series called `name`; 0 when there is none.
    pub fn sum(&self, name: &str) -> f64 {
        self.sum_where(name, "")
    }

    /// The same over those whose labels contain `label`, such as `by="client"`.
    pub fn sum_where(&self, name: &str, label: &str) -> f64 {
        self.series(name, label).sum()
    }

    /// Whether there is a series called `name` whose labels contain `label`.
    pub fn has(&self, name: &str, label: &str) -> bool {
        self.series(name, label).next().is_some()
    }

    fn series(&self, name: &str, label: &str) -> impl Iterator<Item = f64> {
        self.0.lines().filter_map(move |line| {
            let (labels, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
            let ours = labels.is_empty() || labels.starts_with('{');
            (ours && labels.contains(label)).then(|| value.parse::<f64>().ok())?
        })
    }
}
