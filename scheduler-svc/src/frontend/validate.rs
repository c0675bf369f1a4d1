//! Every field of a request, checked before anything is spent on it.

use std::time::Duration;

use firstlight_proto::{
    error::{Failure, quoted},
    v1,
};
use tonic::metadata::MetadataMap;

use crate::{admission::Tenant, dispatch::Served, otlp::TraceParent};

/// Largest prompt text, bytes.
pub const MAX_PROMPT_BYTES: usize = 1 << 20;
/// Largest prompt of token ids.
pub const MAX_PROMPT_TOKENS: usize = 1 << 20;
/// Longest request id, run label, model, tenant and class, characters.
const MAX_NAME: usize = 128;
/// Most stop strings, and the longest, bytes.
const MAX_STOP_STRINGS: usize = 16;
const MAX_STOP_BYTES: usize = 256;
/// Most stop token ids.
const MAX_STOP_IDS: usize = 64;
/// Largest `max_new_tokens`; contexts are far below it.
const MAX_NEW_TOKENS: u32 = 1 << 24;
/// Longest deadline that is kept; a longer one is none.
const MAX_DEADLINE: Duration = Duration::from_secs(86_400);

/// A request whose fields are in range.
#[derive(Debug)]
pub struct Checked {
    /// Names the request.
    pub id: String,
    /// Groups the requests of one run.
    pub run_label: String,
    /// The prompt, not tokenized yet.
    pub prompt: Prompt,
    /// Most tokens to generate.
    pub max_new: u32,
    /// How tokens are chosen; its seed is set.
    pub sampling: v1::Sampling,
    /// Generation ends at one of these.
    pub stop: v1::Stop,
    /// Leave the timeline out of the last message.
    pub omit_timeline: bool,
    /// Neither read nor fill the prefix cache.
    pub no_prefix_cache: bool,
}

/// What the model is to continue.
#[derive(Debug, PartialEq, Eq)]
pub enum Prompt {
    /// To be tokenized; not empty.
    Text(String),
    /// Taken as it is; not empty, all in the vocabulary as far as it is known.
    Ids(Vec<u32>),
}

/// Checks a request against the model that is served. `tokenizer` is the size of our vocabulary.
///
/// # Errors
/// The first field that is wrong.
pub fn request(
    request: v1::GenerateRequest,
    served: &Served,
    tokenizer: Option<usize>,
) -> Result<Checked, Failure> {
    let v1::GenerateRequest {
        request_id,
        model,
        prompt,
        max_new_tokens,
        sampling,
        stop,
        run_label,
        omit_timeline,
        no_prefix_cache,
    } = request;
    name("request_id", &request_id)?;
    name("run_label", &run_label)?;
    // What the operator called it is right, whatever it looks like.
    if !model.is_empty() && model != served.name {
        name("model", &model)?;
        let reason = format!("{} is not served here; {} is", quoted(&model), quoted(&served.name));
        return Err(invalid("model", reason));
    }
    if !(1..=MAX_NEW_TOKENS).contains(&max_new_tokens) {
        return Err(invalid("max_new_tokens", format!("{max_new_tokens}; 1 to {MAX_NEW_TOKENS}")));
    }
    let vocab = match served.vocab_size {
        0 => tokenizer,
        size => Some(size as usize),
    };
    let stop = stop.unwrap_or_default();
    stops(&stop, vocab, tokenizer.is_some())?;
    Ok(Checked {
        id: request_id,
        run_label,
        prompt: self::prompt(prompt, vocab, tokenizer.is_some())?,
        max_new: max_new_tokens,
        sampling: self::sampling(sampling.unwrap_or_default())?,
        stop,
        omit_timeline,
        no_prefix_cache,
    })
}

/// What is asked for in the call's metadata.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Who asks (`x-tenant`).
    pub tenant: Tenant,
    /// Class of the request (`x-class`).
    pub class: String,
    /// Time the caller waits (`grpc-timeout`).
    pub timeout: Option<Duration>,
    /// The trace it records (`traceparent`); one that is invalid is ignored, as its specification demands.
    pub trace: Option<TraceParent>,
}

/// Reads the metadata of a call.
///
/// # Errors
/// Names the entry that is wrong.
pub fn caller(metadata: &MetadataMap) -> Result<Caller, Failure> {
    let entry = |field: &'static str| match metadata.get(field).map(|value| value.to_str()) {
        None => Ok(""),
        Some(Ok(value)) => name(field, value).map(|()| value),
        Some(Err(_)) => Err(invalid(field, "is not visible ASCII".into())),
    };
    let timeout = match entry("grpc-timeout")? {
        "" => None,
        text => {
            Some(timeout(text).ok_or_else(|| invalid("grpc-timeout", format!("{text:?} is no timeout")))?)
        }
    };
    Ok(Caller {
        tenant: Tenant::named(entry("x-tenant")?),
        class: entry("x-class")?.to_owned(),
        timeout: timeout.filter(|t| *t <= MAX_DEADLINE),
        trace: metadata.get("traceparent").and_then(|value| TraceParent::parse(value.to_str().ok()?)),
    })
}

fn prompt(
    prompt: Option<v1::generate_request::Prompt>,
    vocab: Option<usize>,
    has_tokenizer: bool,
) -> Result<Prompt, Failure> {
    use v1::generate_request::Prompt as Wire;
    match prompt {
        None => Err(invalid("prompt", "is missing; give text or token_ids".into())),
        Some(Wire::Text(_)) if !has_tokenizer => {
            Err(invalid("text", "this scheduler has no tokenizer (--model); give token_ids".into()))
        }
        Some(Wire::Text(text)) if text.is_empty() => Err(invalid("text", "is empty".into())),
        Some(Wire::Text(text)) if text.len() > MAX_PROMPT_BYTES => {
            Err(invalid("text", format!("{} bytes; at most {MAX_PROMPT_BYTES}", text.len())))
        }
        Some(Wire::Text(text)) => Ok(Prompt::Text(text)),
        Some(Wire::TokenIds(v1::TokenIds { ids })) => {
            if ids.is_empty() {
                return Err(invalid("token_ids", "is empty".into()));
            }
            if ids.len() > MAX_PROMPT_TOKENS {
                return Err(invalid("token_ids", format!("{} ids; at most {MAX_PROMPT_TOKENS}", ids.len())));
            }
            in_vocabulary("token_ids", &ids, vocab)?;
            Ok(Prompt::Ids(ids))
        }
    }
}

fn stops(stop: &v1::Stop, vocab: Option<usize>, has_tokenizer: bool) -> Result<(), Failure> {
    if stop.strings.len() > MAX_STOP_STRINGS {
        return Err(invalid(
            "stop.strings",
            format!("{} strings; at most {MAX_STOP_STRINGS}", stop.strings.len()),
        ));
    }
    if !has_tokenizer && !stop.strings.is_empty() {
        return Err(invalid(
            "stop.strings",
            "this scheduler has no tokenizer (--model); use token_ids".into(),
        ));
    }
    if let Some(wrong) = stop.strings.iter().find(|s| s.is_empty() || s.len() > MAX_STOP_BYTES) {
        return Err(invalid(
            "stop.strings",
            format!("a string of {} bytes; 1 to {MAX_STOP_BYTES}", wrong.len()),
        ));
    }
    if stop.token_ids.len() > MAX_STOP_IDS {
        return Err(invalid(
            "stop.token_ids",
            format!("{} ids; at most {MAX_STOP_IDS}", stop.token_ids.len()),
        ));
    }
    in_vocabulary("stop.token_ids", &stop.token_ids, vocab)
}

fn sampling(mut sampling: v1::Sampling) -> Result<v1::Sampling, Failure> {
    let v1::Sampling { temperature, top_p, min_p, .. } = sampling;
    if !(temperature.is_finite() && temperature >= 0.0) {
        return Err(invalid("sampling.temperature", format!("{temperature}; finite and at least 0")));
    }
    if !(0.0..=1.0).contains(&top_p) {
        return Err(invalid("sampling.top_p", format!("{top_p}; above 0 and at most 1 (0 = 1)")));
    }
    if !(0.0..1.0).contains(&min_p) {
        return Err(invalid("sampling.min_p", format!("{min_p}; at least 0 and below 1")));
    }
    // The low half of a UUIDv7 is random.
    sampling.seed.get_or_insert_with(|| uuid::Uuid::now_v7().as_u64_pair().1);
    Ok(sampling)
}

fn in_vocabulary(field: &'static str, ids: &[u32], vocab: Option<usize>) -> Result<(), Failure> {
    let outside = |id: &&u32| vocab.is_some_and(|size| **id as usize >= size);
    match ids.iter().find(outside) {
        None => Ok(()),
        Some(id) => {
            let size = vocab.unwrap_or(0);
            Err(invalid(field, format!("{id} is outside the vocabulary; ids are below {size}")))
        }
    }
}

/// Whether a name may be kept and sent back: short, and safe in a header and a label.
pub fn is_name(name: &str) -> bool {
    name.len() <= MAX_NAME && name.bytes().all(|b| b.is_ascii_graphic())
}

fn name(field: &'static str, name: &str) -> Result<(), Failure> {
    if !is_name(name) {
        return Err(invalid(field, format!("must be at most {MAX_NAME} visible ASCII characters")));
    }
    Ok(())
}

/// `grpc-timeout`: up to eight digits and a unit (gRPC over HTTP/2, "Requests").
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let n: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(n * 3600),
        "M" => Duration::from_secs(n * 60),
        "S" => Duration::from_secs(n),
        "m" => Duration::from_millis(n),
        "u" => Duration::from_micros(n),
        "n" => Duration::from_nanos(n),
        _ => return None,
    })
}

fn invalid(field: &'static str, reason: String) -> Failure {
    Failure::Invalid { field, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served() -> Served {
        Served { name: "m".into(), context_length: 64, vocab_size: 10, ..Default::default() }
    }

    fn good() -> v1::GenerateRequest {
        v1::GenerateRequest {
            prompt: Some(v1::generate_request::Prompt::Text("hi".into())),
            max_new_tokens: 4,
            ..Default::default()
        }
    }

    fn field_refused(change: impl FnOnce(&mut v1::GenerateRequest)) -> &'static str {
        let mut wrong = good();
        change(&mut wrong);
        match request(wrong, &served(), Some(10)) {
            Err(Failure::Invalid { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    }

    fn ids(ids: &[u32]) -> Option<v1::generate_request::Prompt> {
        Some(v1::generate_request::Prompt::TokenIds(v1::TokenIds { ids: ids.to_vec() }))
    }

    fn text(text: String) -> Option<v1::generate_request::Prompt> {
        Some(v1::generate_request::Prompt::Text(text))
    }

    #[test]
    fn each_wrong_field_is_named() {
        let sampling = |f: fn(&mut v1::Sampling)| {
            let mut s = v1::Sampling::default();
            f(&mut s);
            Some(s)
        };
        assert_eq!(field_refused(|r| r.prompt = None), "prompt");
        assert_eq!(field_refused(|r| r.prompt = text(String::new())), "text");
        assert_eq!(field_refused(|r| r.prompt = text("x".repeat(MAX_PROMPT_BYTES + 1))), "text");
        assert_eq!(field_refused(|r| r.prompt = ids(&[])), "token_ids");
        assert_eq!(field_refused(|r| r.prompt = ids(&[3, 10])), "token_ids");
        assert_eq!(field_refused(|r| r.max_new_tokens = 0), "max_new_tokens");
        assert_eq!(field_refused(|r| r.model = "other".into()), "model");
        assert_eq!(field_refused(|r| r.model = "x".repeat(129)), "model");
        assert_eq!(field_refused(|r| r.request_id = "a b".into()), "request_id");
        assert_eq!(field_refused(|r| r.run_label = "x".repeat(129)), "run_label");
        for wrong in [f32::NAN, f32::INFINITY, -0.5] {
            let s = Some(v1::Sampling { temperature: wrong, ..Default::default() });
            assert_eq!(field_refused(|r| r.sampling = s), "sampling.temperature");
        }
        assert_eq!(field_refused(|r| r.sampling = sampling(|s| s.top_p = 1.1)), "sampling.top_p");
        assert_eq!(field_refused(|r| r.sampling = sampling(|s| s.min_p = 1.0)), "sampling.min_p");
        let stop = |strings: &[&str], token_ids: &[u32]| {
            let strings = strings.iter().map(|s| (*s).to_owned()).collect();
            Some(v1::Stop { strings, token_ids: token_ids.to_vec(), ignore_eos: false })
        };
        assert_eq!(field_refused(|r| r.stop = stop(&[""], &[])), "stop.strings");
        assert_eq!(field_refused(|r| r.stop = stop(&[], &[10])), "stop.token_ids");
    }

    #[test]
    fn a_good_request_keeps_its_id_and_gets_a_seed() {
        let named = v1::GenerateRequest { request_id: "mine".into(), model: "m".into(), ..good() };
        let checked = request(named, &served(), Some(10)).unwrap();
        assert_eq!(checked.id, "mine");
        assert!(checked.sampling.seed.is_some());
    }

    #[test]
    fn the_model_is_known_by_whatever_name_its_operator_gave_it() {
        let served = Served { name: "größtes Modell".repeat(20), ..served() };
        let named = v1::GenerateRequest { model: served.name.clone(), ..good() };
        assert!(request(named, &served, Some(10)).is_ok());
    }

    #[test]
    fn without_a_tokenizer_only_token_ids_are_taken() {
        assert!(request(good(), &served(), None).is_err());
        let by_ids = v1::GenerateRequest { prompt: ids(&[1]), ..good() };
        assert_eq!(request(by_ids, &served(), None).unwrap().prompt, Prompt::Ids(vec![1]));
    }

    #[test]
    fn a_timeout_is_read_in_every_unit() {
        assert_eq!(timeout("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(timeout("1500m"), Some(Duration::from_millis(1500)));
        assert_eq!(timeout("99999999n"), Some(Duration::from_nanos(99_999_999)));
        for wrong in ["", "S", "5", "-1S", "123456789m", "1é"] {
            assert_eq!(timeout(wrong), None, "{wrong}");
        }
    }
}
