//! The field names of `vllm bench serve`, beside our own, so that existing scripts read the JSON.

use serde_json::{Map, Value, json};

use super::{Results, stats::Percentiles};

/// The results as JSON with those fields at the top.
///
/// # Errors
/// When the results cannot be serialized.
pub fn with_fields(r: &Results) -> serde_json::Result<Value> {
    let mut all = serde_json::to_value(r)?;
    if let Value::Object(object) = &mut all {
        object.extend(fields(r));
    }
    Ok(all)
}

fn fields(r: &Results) -> Map<String, Value> {
    let mut out = Map::new();
    let mut put = |name: String, value: Value| out.insert(name, value);
    let output = r.throughput.output_tokens_per_s;
    let total = r
        .throughput
        .wall_s
        .zip(r.requests.prompt_tokens)
        .map(|(wall, prompt)| (prompt + r.requests.completion_tokens) as f64 / wall);
    put("backend".into(), json!(r.run.api));
    put("label".into(), json!(r.run.label));
    put("model_id".into(), json!(r.run.model));
    put("num_prompts".into(), json!(r.requests.completed + r.requests.failed));
    put("duration".into(), json!(r.throughput.wall_s));
    put("completed".into(), json!(r.requests.completed));
    put("failed".into(), json!(r.requests.failed));
    put("total_input_tokens".into(), json!(r.requests.prompt_tokens));
    put("total_output_tokens".into(), json!(r.requests.completion_tokens));
    put("request_throughput".into(), json!(r.throughput.requests_per_s));
    put("request_goodput".into(), json!(r.goodput.as_ref().map(|g| g.requests_per_s)));
    put("output_throughput".into(), json!(output));
    put("total_token_throughput".into(), json!(total));
    for (name, p) in [("ttft", &r.ttft), ("tpot", &r.tpot), ("itl", &r.itl), ("e2el", &r.latency)] {
        let Percentiles { mean_ms, p50_ms, p95_ms, p99_ms, std_ms, .. } = p;
        put(format!("mean_{name}_ms"), json!(mean_ms));
        put(format!("median_{name}_ms"), json!(p50_ms));
        put(format!("std_{name}_ms"), json!(std_ms));
        put(format!("p95_{name}_ms"), json!(p95_ms));
        put(format!("p99_{name}_ms"), json!(p99_ms));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_fields_stay_and_unmeasured_ones_are_null() {
        let json = with_fields(&Results::default()).unwrap();
        assert!(json["ttft"].is_object() && json["segments"].is_object());
        assert_eq!(json["mean_ttft_ms"], Value::Null);
        assert_eq!(json["completed"], json!(0));
    }
}
