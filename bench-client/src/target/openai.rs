//! Requests to any server that speaks OpenAI's HTTP API, streamed: `/v1/completions` or
//! `/v1/chat/completions`. vLLM, llama.cpp and TGI are measured by the same code as our own services.

use std::time::Duration;

use anyhow::{Context as _, bail};
use firstlight_proto::{
    clock::{Clock, Stamp},
    error::Kind,
};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Arrival, Ask, Outcome, Prompt, Record,
    https::{Connector, Trust, connector},
    sse::SseParser,
};

/// Which of the two APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Api {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

/// An OpenAI-compatible server.
#[derive(Debug)]
pub struct OpenAi {
    base: String,
    api: Api,
    model: String,
    extra: Vec<(String, Value)>,
    timeout: Option<Duration>,
    http: Client<Connector, Full<Bytes>>,
    clock: Clock,
}

/// Why a request failed.
struct Failed {
    kind: &'static str,
    message: String,
}

impl OpenAi {
    /// A server at `base` (`http://host:port` or `https://host`); `extra` fields are put into every request
    /// body. Without a model name the first one the server lists is used.
    ///
    /// # Errors
    /// When the address is neither, the TLS files cannot be used, or no model is named and none is listed.
    pub async fn connect(
        base: &str,
        api: Api,
        model: Option<String>,
        extra: Vec<(String, Value)>,
        timeout: Option<Duration>,
        clock: Clock,
        trust: &Trust,
    ) -> anyhow::Result<Self> {
        let tls = base.starts_with("https://");
        if !tls && !base.starts_with("http://") {
            bail!("--openai {base:?}: write http://HOST:PORT or https://HOST:PORT");
        }
        let connector = connector(tls.then_some(trust)).context("TLS")?;
        let http = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(usize::MAX).build(connector);
        let base = base.trim_end_matches('/').to_owned();
        let mut server = Self { base, api, model: model.unwrap_or_default(), extra, timeout, http, clock };
        if server.model.is_empty() {
            server.model = server.first_model().await?;
        }
        Ok(server)
    }

    /// Name of the model that is asked for.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// The body of a GET, as text.
    ///
    /// # Errors
    /// When there is no answer, or one that is not 200.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        let url = format!("{}{path}", self.base);
        let request = Request::get(&url).body(Full::default())?;
        let response = self.http.request(request).await.with_context(|| format!("no answer from {url}"))?;
        anyhow::ensure!(response.status() == StatusCode::OK, "{url} answers {}", response.status());
        let body = response.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    /// Sends one request and reads its stream to the end, filling in `record`; `on_message` sees the
    /// record after every message that brought text.
    pub async fn generate(&self, ask: Ask, record: &mut Record, mut on_message: impl FnMut(&Record)) {
        let exchange = self.exchange(ask, record, &mut on_message);
        let ended = match self.timeout {
            Some(limit) => tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| {
                Err(Failed { kind: Kind::Deadline.label(), message: format!("no end within {limit:?}") })
            }),
            None => exchange.await,
        };
        record.ended = Some(self.clock.now());
        record.outcome = match ended {
            Ok(()) => Outcome::Finished,
            Err(Failed { kind, message }) => Outcome::Failed { kind, message },
        };
    }

    async fn exchange(
        &self,
        ask: Ask,
        record: &mut Record,
        on_message: &mut impl FnMut(&Record),
    ) -> Result<(), Failed> {
        let request = self.request(ask, &record.id).map_err(|e| failed(Kind::Invalid, e))?;
        record.sent = Some(self.clock.now());
        let response = self.http.request(request).await.map_err(|e| failed(Kind::Unavailable, e))?;
        record.submit_end = Some(self.clock.now());
        let status = response.status();
        let body = response.into_body();
        if status != StatusCode::OK {
            let text = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).chars().take(300).collect::<String>();
            return Err(Failed { kind: kind_of(status).label(), message: format!("{status}: {text}") });
        }
        self.read(body, record, on_message).await
    }

    async fn read(
        &self,
        mut body: Incoming,
        record: &mut Record,
        on_message: &mut impl FnMut(&Record),
    ) -> Result<(), Failed> {
        let (mut parser, mut count) = (SseParser::default(), TokenCount::default());
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| failed(Kind::Unavailable, e))?;
            let at = self.clock.now();
            for data in frame.data_ref().map(|d| parser.push(d)).unwrap_or_default() {
                if data == "[DONE]" {
                    count.finish(record);
                    return Ok(());
                }
                let chunk: Chunk = serde_json::from_str(&data).map_err(|e| failed(Kind::Bug, e))?;
                if let Some(error) = chunk.error {
                    return Err(failed(Kind::Bug, error));
                }
                if count.take(&chunk, at, record) {
                    on_message(record);
                }
            }
        }
        Err(Failed { kind: Kind::Unavailable.label(), message: "the stream ended without [DONE]".to_owned() })
    }

    fn request(&self, ask: Ask, id: &str) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut body = json!({
            "model": self.model,
            "max_tokens": ask.max_new_tokens,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        match (self.api, ask.prompt) {
            (Api::Completions, Prompt::Text(text)) => body["prompt"] = json!(text),
            (Api::Completions, Prompt::Ids(ids)) => body["prompt"] = json!(ids),
            (Api::Chat, Prompt::Text(text)) => body["messages"] = json!([{"role": "user", "content": text}]),
            (Api::Chat, Prompt::Ids(_)) => {
                bail!("chat takes text, not token ids; use --openai-api completions")
            }
        }
        for (name, value) in &self.extra {
            body[name] = value.clone();
        }
        let path = match self.api {
            Api::Completions => "/v1/completions",
            Api::Chat => "/v1/chat/completions",
        };
        let request = Request::post(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-request-id", id)
            .body(Full::from(body.to_string()))?;
        Ok(request)
    }

    async fn first_model(&self) -> anyhow::Result<String> {
        let listed: Value = serde_json::from_str(&self.get("/v1/models").await?)?;
        let name =
            listed["data"][0]["id"].as_str().context("the server lists no model; name one with --model")?;
        Ok(name.to_owned())
    }
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    delta: Option<Delta>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    reasoning_content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
}

impl Chunk {
    fn has_text(&self) -> bool {
        let some = |s: &Option<String>| s.as_ref().is_some_and(|s| !s.is_empty());
        let brought = |c: &Choice| {
            some(&c.text) || c.delta.as_ref().is_some_and(|d| some(&d.content) || some(&d.reasoning_content))
        };
        self.choices.iter().any(brought)
    }
}

/// Tokens by the server's own count where it gives one; a message with text is one token until told better.
#[derive(Default)]
struct TokenCount {
    counted: Option<u32>,
    in_messages: u32,
}

impl TokenCount {
    /// True when the chunk brought text.
    fn take(&mut self, chunk: &Chunk, at: Stamp, record: &mut Record) -> bool {
        let mut fresh = 1;
        if let Some(usage) = &chunk.usage {
            record.prompt_tokens = usage.prompt_tokens.or(record.prompt_tokens);
            if let Some(total) = usage.completion_tokens {
                fresh = total.saturating_sub(self.in_messages).max(1);
                self.counted = Some(total);
            }
        }
        let text = chunk.has_text();
        if text {
            self.in_messages += fresh;
            record.arrivals.push(Arrival { at, tokens: fresh });
        }
        text
    }

    fn finish(self, record: &mut Record) {
        record.counted_tokens = self.counted;
    }
}

fn failed(kind: Kind, error: impl std::fmt::Display) -> Failed {
    Failed { kind: kind.label(), message: error.to_string() }
}

/// The row of the error table with this HTTP status, or the nearest one.
fn kind_of(status: StatusCode) -> Kind {
    let exact = Kind::all().find(|k| k.http() == status.as_u16());
    exact.unwrap_or(if status.is_client_error() { Kind::Invalid } else { Kind::Bug })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::new("r".into(), 0, 0, Stamp::from_ns(0))
    }

    fn feed(record: &mut Record, chunks: &[&str]) -> TokenCount {
        let mut count = TokenCount::default();
        for (i, chunk) in chunks.iter().enumerate() {
            count.take(&serde_json::from_str(chunk).unwrap(), Stamp::from_ns(i as i64 + 1), record);
        }
        count
    }

    #[test]
    fn a_role_or_usage_chunk_is_no_token() {
        let mut record = record();
        let chunks = [
            r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":"Hi"}}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}"#,
        ];
        feed(&mut record, &chunks).finish(&mut record);
        assert_eq!(record.first_token(), Some(Stamp::from_ns(2)));
        assert_eq!((record.output_tokens(), record.prompt_tokens), (1, Some(5)));
    }

    #[test]
    fn a_chunk_of_several_tokens_counts_as_the_server_counts() {
        let mut record = record();
        let chunks = [
            r#"{"choices":[{"text":"a"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}"#,
            r#"{"choices":[{"text":"b c d"}],"usage":{"prompt_tokens":5,"completion_tokens":4}}"#,
        ];
        feed(&mut record, &chunks).finish(&mut record);
        assert_eq!(record.arrivals.iter().map(|a| a.tokens).collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn the_final_count_wins_over_the_number_of_messages() {
        let mut record = record();
        let chunks = [
            r#"{"choices":[{"text":"a"}]}"#,
            r#"{"choices":[{"text":"bc"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":7}}"#,
        ];
        feed(&mut record, &chunks).finish(&mut record);
        assert_eq!(record.output_tokens(), 7);
        assert!(!record.knows_tokens_per_message());
    }
}
