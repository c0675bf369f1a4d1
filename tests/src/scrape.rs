//! Metrics of a service, as Prometheus would read them.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// The sum over all series called `name` at `http://ADDRESS/metrics`; `None` when there is none.
///
/// # Panics
/// When the service does not answer.
pub async fn metric(address: &str, name: &str) -> Option<f64> {
    let body = metrics(address).await;
    let series = body.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        (labels.is_empty() || labels.starts_with('{')).then(|| value.parse::<f64>().ok())?
    });
    series.reduce(|sum, value| sum + value)
}

/// The whole page.
///
/// # Panics
/// When the service does not answer.
pub async fn metrics(address: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("metrics listener");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("metrics request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("metrics answer");
    answer
}
