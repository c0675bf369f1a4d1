//! What a service exports to Prometheus, at one moment.

use anyhow::Context as _;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

/// All series of a scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape(Vec<Series>);

#[derive(Clone, Debug, PartialEq)]
struct Series {
    name: String,
    labels: String,
    value: f64,
}

impl Scrape {
    /// Reads Prometheus text.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        Self(lines.filter_map(Series::parse).collect())
    }

    /// Whether a metric is exported.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|s| s.name == name)
    }

    /// Sum over all series of a metric; 0 when it is not exported.
    pub fn sum(&self, name: &str) -> f64 {
        self.0.iter().filter(|s| s.name == name).map(|s| s.value).sum()
    }

    /// Sum over the series of a metric that have this label.
    pub fn sum_where(&self, name: &str, label: &str, value: &str) -> f64 {
        let wanted = format!("{label}=\"{value}\"");
        let matching = self.0.iter().filter(|s| s.name == name && s.labels.split(',').any(|l| l == wanted));
        matching.map(|s| s.value).sum()
    }
}

impl Series {
    fn parse(line: &str) -> Option<Self> {
        let (series, value) = line.trim().rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        Some(Self {
            name: name.to_owned(),
            labels: labels.trim_end_matches('}').to_owned(),
            value: value.parse().ok()?,
        })
    }
}

/// Fetches scrapes over HTTP.
#[derive(Clone, Debug)]
pub struct Scraper {
    http: Client<HttpConnector, Empty<Bytes>>,
}

impl Default for Scraper {
    fn default() -> Self {
        Self { http: Client::builder(TokioExecutor::new()).build_http() }
    }
}

impl Scraper {
    /// The metrics of the service whose metrics listener is `addr` (`host:port`).
    ///
    /// # Errors
    /// Names the address that does not answer with metrics.
    pub async fn scrape(&self, addr: &str) -> anyhow::Result<Scrape> {
        let url = format!("http://{addr}/metrics");
        let request = Request::get(&url).body(Empty::new())?;
        let response = self.http.request(request).await.with_context(|| format!("no answer from {url}"))?;
        anyhow::ensure!(response.status() == StatusCode::OK, "{url} answers {}", response.status());
        let body = response.into_body().collect().await.with_context(|| url.clone())?.to_bytes();
        Ok(Scrape::parse(&String::from_utf8_lossy(&body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_name_and_by_label() {
        let scrape = Scrape::parse("# HELP a b\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4.5\nb 7\n\nbroken\n");
        assert_eq!((scrape.sum("a"), scrape.sum("b"), scrape.sum("c")), (7.5, 7.0, 0.0));
        assert_eq!((scrape.sum_where("a", "y", "2"), scrape.sum_where("a", "x", "2")), (3.0, 4.5));
        assert!(scrape.has("b") && !scrape.has("c"));
    }
}
